"""The delivered folder: written together or not at all, and signed with the statements about earlier steps."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError, RcilError, TrustError
from rcil.core.files import scratch, working_in, write_file
from rcil.core.signing import (
    FAILED_REPORTS,
    PARENT_NAME,
    SIGNATURE_NAME,
    Statement,
    authenticate,
    find_statements,
    key_fingerprint,
    read_statement,
    sign,
    trusted_fingerprint,
)
from rcil.model.chain import delivered_metadata
from rcil.model.metadata import LineageEntry, Metadata
from rcil_export.delivery import (
    CARD_NAME,
    DELIVERED,
    ENGINE_NAME,
    FAILED_HTML_NAME,
    FAILED_JSON_NAME,
    HTML_NAME,
    JSON_NAME,
    ONNX_NAME,
    SIDECAR_NAME,
)
from rcil_export.delivery.card import card_text
from rcil_export.inspect_file import describe


@dataclass(frozen=True)
class Signing:
    """The keys of one export."""

    key: Path | None = None
    """EC private key, PEM; None: the export is not signed."""
    password: str | None = field(default=None, repr=False)
    """Password of the private key."""
    trust: tuple[Path, ...] = ()
    """Public keys: statements of earlier steps, and what is published in Triton, must be signed with one of them."""


def check_signing(signing: Signing, output: Path, *, publishes: bool) -> None:
    """Raise if the delivery could not be signed in the end; nothing is written.

    Args:
        signing: The private key, and the trusted public keys.
        output: The delivered folder.
        publishes: Whether the model also goes into a Triton repository.
    """
    known = {trusted_fingerprint(key) for key in signing.trust}
    if signing.key is None:
        if known and publishes:
            raise TrustError(
                "--trust lets only signed models into the Triton repository, and this one is not signed",
                "Add --sign KEY, or leave --trust out.",
            )
        if known:
            raise ConfigError("--trust is for --sign and --triton", "Add --sign KEY, or leave --trust out.")
        return
    own = key_fingerprint(signing.key, signing.password)
    if known and own not in known:
        raise TrustError(
            f"the key {signing.key} ({own[:16]}…) is none of those that --trust names",
            f"Name its public part too: openssl ec -in {signing.key} -pubout",
        )
    foreign = sorted(path.name for path in output.iterdir() if not _belongs(path.name)) if output.is_dir() else []
    if foreign:
        raise ConfigError(
            f"{output} holds {', '.join(foreign[:3])}, and a signed folder holds only what is delivered",
            "Choose an empty folder for -o, or remove the other files.",
        )


def _belongs(name: str) -> bool:
    temporary = name.startswith(".") and name.endswith(".part")
    return temporary or name in (*DELIVERED, *FAILED_REPORTS) or PARENT_NAME.fullmatch(name) is not None


def sign_target(target: Path, key: Path, password: str | None = None) -> Statement:
    """Sign a delivered folder, whose report names the checkpoint it came from, or a single file."""
    if not target.exists():
        raise ConfigError(f"{target} does not exist", "Name a delivered folder, a checkpoint or an ONNX file.")
    about = ""
    if target.is_dir():
        check_signing(Signing(key, password), target, publishes=False)
        about = _about(delivered_metadata(target))
    elif target.suffix not in (".onnx", ".safetensors"):
        raise ConfigError(
            f"{target} cannot be signed by itself", "Sign the folder that it was delivered in: an engine has a sidecar."
        )
    else:
        describe(target)  # a file that cannot be read is not signed
    return read_statement(sign(target, key, about=about, password=password))


def sign_delivery(files: list[Path], metadata: Metadata, signing: Signing, search: Iterable[Path]) -> list[Path]:
    """Sign the files of a delivery together with the statements about earlier steps.

    Args:
        files: All in one temporary folder.
        metadata: Of the deployed model; its last lineage entry is the export.
        signing: Without a key nothing is signed.
        search: Folders that may hold statements of earlier steps.

    Returns:
        The files, the statements and the signature, in this order.
    """
    if signing.key is None:
        return files
    folder = files[0].with_name("delivered")  # a signature covers everything in its folder
    folder.mkdir()
    signed = [path.replace(folder / path.name) for path in files]
    for name, statement in earlier_statements(metadata.lineage, search, signing.trust).items():
        signed.append(Path(shutil.copyfile(statement.path, folder / name)))
    return [*signed, sign(folder, signing.key, about=_about(metadata), password=signing.password)]


def _about(metadata: Metadata) -> str:
    parent = metadata.lineage[-1].parent_sha256 if metadata.lineage else None
    return f"step {metadata.step} of checkpoint sha256:{parent}" if parent else f"step {metadata.step}"


def earlier_statements(
    lineage: Sequence[LineageEntry], search: Iterable[Path], trust: Sequence[Path] = ()
) -> dict[str, Statement]:
    """The statements about the checkpoints of a lineage, by their file names in a delivered folder.

    A statement belongs to a checkpoint whose sha256 it contains, whatever its file is called. For earlier steps, the
    statement of a delivery is preferred to that of the checkpoint alone. For the exported checkpoint itself, only a
    statement about that very file counts, because other deliveries of it are no part of the chain.

    Args:
        lineage: Of the deployed model; the parent of entry i is the checkpoint that entry i - 1 made.
        search: Folders that may hold statements.
        trust: Public keys; if there are any, statements signed with other keys are refused.
    """
    found = sorted(find_statements(dict.fromkeys(search)), key=lambda s: (s.path.name != SIGNATURE_NAME, s.path))
    chosen: dict[str, Statement] = {}
    for before, after in pairwise(lineage):
        sha256, last = after.parent_sha256, after is lineage[-1]
        about = [s for s in found if sha256 in (s.digests.values() if last else s.checkpoints)]
        if about:
            chosen[f"step{before.step}.sig"] = authenticate(about[0].path, trust) if trust else about[0]
    return chosen


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
    write_file(card, card_text(document, metadata, made, signed=signing.key is not None))
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
