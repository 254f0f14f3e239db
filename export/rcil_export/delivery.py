"""What goes into a delivered folder beside model and report: the model card, earlier statements, the signature."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rcil.checkpoint.metadata import LineageEntry, Metadata
from rcil.errors import ConfigError, TrustError
from rcil.files import replacing
from rcil.signing import (
    FAILED_REPORTS,
    PARENT_NAME,
    SIGNATURE_NAME,
    Statement,
    authenticate,
    find_statements,
    key_fingerprint,
    sign,
    trusted_fingerprint,
)
from rcil_export.card import CARD_NAME, card_text
from rcil_export.signing_options import Signing

MODEL_FILES = ("model.onnx", "model.engine", "model.engine.json")
DELIVERED = (*MODEL_FILES, "report.json", "report.html", CARD_NAME, SIGNATURE_NAME)
"""Names of the files that make up a delivery; statements of earlier steps, `stepN.sig`, come on top."""


def check_signing(signing: Signing, output: Path, *, publishes: bool) -> None:
    """Raise for all that signing would trip over; nothing is written.

    Args:
        signing: With which key, and whom to trust.
        output: The delivered folder.
        publishes: Whether the model goes into a Triton repository too.
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
    scratch = name.startswith(".") and name.endswith(".part")
    return scratch or name in (*DELIVERED, *FAILED_REPORTS) or PARENT_NAME.fullmatch(name) is not None


def complete(
    made: Sequence[Path],
    document: Mapping[str, Any],
    metadata: Metadata,
    signing: Signing,
    search: Iterable[Path],
) -> list[Path]:
    """Add the model card to what was made, and sign all of it if there is a key.

    Args:
        made: Model and report files, in one temporary folder.
        document: The report.
        metadata: Of the deployed model; its last entry is the export.
        signing: With which key, if any.
        search: Folders where statements of earlier steps may lie.

    Returns:
        Everything that is to be delivered, the signature last.
    """
    folder = made[0].parent
    card = folder / CARD_NAME
    with replacing(card) as part:
        part.write_text(card_text(document, metadata, made, signed=signing.key is not None), encoding="utf-8")
    whole = [*made, card]
    if signing.key is None:
        return whole
    box = folder / "delivered"  # nothing but what is delivered may be signed
    box.mkdir()
    whole = [path.replace(box / path.name) for path in whole]
    for name, statement in earlier_statements(metadata.lineage, search, signing.trust).items():
        whole.append(Path(shutil.copyfile(statement.path, box / name)))
    about = f"step {metadata.step} of checkpoint sha256:{metadata.lineage[-1].parent_sha256}"
    return [*whole, sign(box, signing.key, about=about, password=signing.password)]


def earlier_statements(
    lineage: Sequence[LineageEntry], search: Iterable[Path], trust: Sequence[Path] = ()
) -> dict[str, Statement]:
    """The statements that vouch for the checkpoints in a lineage, by the names they get in a delivered folder.

    A statement belongs to a checkpoint whose sha256 it names, so it does not matter what its file is called. For
    earlier steps a delivery's statement goes before that of the checkpoint alone. For the checkpoint that is being
    exported only a statement about that very file counts, since other deliveries of it are no part of the chain.

    Args:
        lineage: Of the deployed model; the parent of entry i is the checkpoint that entry i - 1 made.
        search: Folders where statements may lie.
        trust: Public keys; if there are any, statements of others are refused.
    """
    found = sorted(find_statements(dict.fromkeys(search)), key=lambda s: (s.path.name != SIGNATURE_NAME, s.path))
    chosen: dict[str, Statement] = {}
    for before, after in pairwise(lineage):
        sha256, last = after.parent_sha256, after is lineage[-1]
        about = [s for s in found if sha256 in (s.digests.values() if last else s.checkpoints)]
        if about:
            chosen[f"step{before.step}.sig"] = authenticate(about[0].path, trust) if trust else about[0]
    return chosen
