"""Writing the delivered folder: all files together, or none of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError
from rcil.core.files import replacing, scratch, working_in
from rcil.core.signing import PARENT_NAME, SIGNATURE_NAME
from rcil.model.metadata import Metadata
from rcil_export.delivery import (
    CARD_NAME,
    ENGINE_NAME,
    FAILED_HTML_NAME,
    FAILED_JSON_NAME,
    HTML_NAME,
    JSON_NAME,
    ONNX_NAME,
    SIDECAR_NAME,
)
from rcil_export.delivery.card import card_text
from rcil_export.delivery.signing import Signing, sign_delivery


@contextmanager
def working_folder(output: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as `output`, so that nobody ever sees a half-written delivery.

    `output` is locked meanwhile, because two exports would mix their files there.
    """
    with working_in(output), ExitStack() as stack:
        with _write_errors(output):
            output.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(scratch(output, "rcil-export"))
        yield folder


def report_paths(folder: Path, *, ok: bool) -> tuple[Path, Path]:
    """Paths of the HTML and the JSON report, by whether the checks passed."""
    names = (HTML_NAME, JSON_NAME) if ok else (FAILED_HTML_NAME, FAILED_JSON_NAME)
    return folder / names[0], folder / names[1]


def complete(
    made: Sequence[Path], document: Mapping[str, Any], metadata: Metadata, signing: Signing, search: Iterable[Path]
) -> list[Path]:
    """Add the model card to what was made, and sign all of it if there is a key.

    Args:
        made: Model and report files, in one temporary folder.
        document: The report.
        metadata: Of the deployed model; its last lineage entry is the export.
        signing: The key to sign with, if any.
        search: Folders that may hold statements of earlier steps.

    Returns:
        All files to deliver, the signature last.
    """
    card = made[0].with_name(CARD_NAME)
    with replacing(card) as part:
        part.write_text(card_text(document, metadata, made, signed=signing.key is not None), encoding="utf-8")
    return sign_delivery([*made, card], metadata, signing, search)


def deliver(output: Path, made: list[Path]) -> dict[str, Path]:
    """Move finished files into the delivered folder, the report and the signature last.

    If there is a model among them, reports and statements of an earlier delivery are removed first, and then an engine
    that is not replaced. A process that is killed in between leaves a model without a report, never a model with the
    report of another one. Reports alone are those of a failed export; everything else stays as it is.
    """
    names = {path.name for path in made}
    reports = (SIGNATURE_NAME, CARD_NAME, JSON_NAME, HTML_NAME, FAILED_JSON_NAME, FAILED_HTML_NAME)
    engine = tuple(name for name in (SIDECAR_NAME, ENGINE_NAME) if name not in names)
    with _write_errors(output):
        if ONNX_NAME in names:
            statements = [path.name for path in output.glob("step*.sig") if PARENT_NAME.fullmatch(path.name)]
            for name in (*reports, *engine, *statements):
                (output / name).unlink(missing_ok=True)
        return {path.name: path.replace(output / path.name) for path in made}


@contextmanager
def _write_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RcilError(
            f"cannot write to {output}: {error.strerror}", "Check the folder and its permissions."
        ) from error
