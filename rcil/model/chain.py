"""The lineage of a model, step by step: classes, data, losses and signatures. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rcil.core.documents import parse_json
from rcil.core.errors import CheckpointError, TrustError
from rcil.core.files import sha256_of
from rcil.core.signing import SIGNATURE_NAME, Statement, authenticate, find_statements, verify
from rcil.model.header import parse_metadata, read_header
from rcil.model.metadata import LineageEntry, Metadata

REPORT_NAME = "report.json"
"""The report of a delivered folder; its entry `model` describes the model."""
IMAGES = {"training_images": "training", "held_out_images": "held out", "norm_images": "for norms"}
"""Metrics that count images, and what the images are used for."""


@dataclass(frozen=True)
class Signed:
    """A signed statement about one link."""

    file: str
    fingerprint: str
    """Fingerprint of the signer's public key."""
    verified: bool | None
    """Whether the statement verifies; None if no key was given."""
    problem: str = ""
    """Why the statement does not verify."""


@dataclass(frozen=True)
class Link:
    """One entry of a model's lineage."""

    step: int
    source: str
    method: str
    """The training method; empty if none is recorded."""
    seed: int | None
    taught: tuple[str, ...]
    """Classes that this step added; empty for a fold or an export."""
    sha256: str | None
    """SHA-256 of the resulting checkpoint; None for an export."""
    parent_sha256: str | None
    data_sha256: str | None
    images: dict[str, int]
    """Number of images by use; empty if none are recorded."""
    iou: dict[str, float]
    """IoU of each class in percent, on the held-out images of this step."""
    lost: dict[str, float]
    """Points of IoU lost since the step before, by class; negative where the new model is better."""
    metrics: dict[str, float]
    """All other measurements."""
    config: dict[str, Any]
    versions: dict[str, str]
    signed: tuple[Signed, ...] = ()


@dataclass(frozen=True)
class Chain:
    """All links of a model, the oldest first."""

    file: str
    links: tuple[Link, ...]
    rejected: str | None
    uncertain: str | None = None
    problems: tuple[str, ...] = ()
    """Why the chain does not verify; empty if no key was given."""


def links_of(metadata: Metadata, sha256: str | None = None) -> list[Link]:
    """The lineage of a model as links.

    Args:
        metadata: Metadata of the model.
        sha256: SHA-256 of its checkpoint; None for an export.
    """
    entries = metadata.lineage
    links: list[Link] = []
    known: set[str] = set()
    for index, entry in enumerate(entries):
        made = entries[index + 1].parent_sha256 if index + 1 < len(entries) else sha256
        # An imported model has the classes of several steps at once.
        taught = tuple(c.name for c in metadata.classes if c.step <= entry.step and c.name not in known)
        known.update(taught)
        links.append(_link(entry, taught, made, links[-1].iou if links else {}))
    return links


def _link(entry: LineageEntry, taught: tuple[str, ...], made: str | None, before: dict[str, float]) -> Link:
    iou = {key.removeprefix("iou "): value for key, value in entry.metrics.items() if key.startswith("iou ")}
    lost = {key.removeprefix("drop "): value for key, value in entry.metrics.items() if key.startswith("drop ")}
    rest = {k: v for k, v in entry.metrics.items() if not k.startswith(("iou ", "drop ")) and k not in IMAGES}
    method = entry.config.get("method", "")
    return Link(
        step=entry.step,
        source=entry.source,
        method=str(method.get("name", "")) if isinstance(method, dict) else str(method),
        seed=entry.seed,
        taught=taught,
        sha256=made,
        parent_sha256=entry.parent_sha256,
        data_sha256=entry.data_sha256,
        images={what: int(entry.metrics[key]) for key, what in IMAGES.items() if key in entry.metrics},
        iou=iou,
        lost=lost or {name: before[name] - iou[name] for name in before if name in iou},
        metrics=rest,
        config=entry.config,
        versions=entry.versions,
    )


def chain_of(path: Path, trust: Sequence[Path] = ()) -> Chain:
    """The chain of a checkpoint, or of a delivered folder, with the statements that lie beside it.

    Args:
        path: A checkpoint, a delivered folder, or a model file in one.
        trust: Public keys to verify the statements with; without them nothing is verified.
    """
    folder = path if path.is_dir() else path.parent if path.suffix != ".safetensors" else None
    if folder is None:
        sha256 = sha256_of(path) if path.is_file() else None
        metadata, found = read_header(path).metadata, find_statements([path.parent])
    else:
        sha256, metadata, found = None, delivered_metadata(folder), find_statements([folder])
    judged = [(s, _judged(s, trust, folder if s.path.name == SIGNATURE_NAME else None)) for s in found]
    links = []
    for link in links_of(metadata, sha256):
        if link.sha256 is None:  # the delivery itself
            signed = [signed for statement, signed in judged if statement.path.name == SIGNATURE_NAME]
        else:
            signed = [signed for statement, signed in judged if link.sha256 in statement.checkpoints]
        links.append(replace(link, signed=tuple(signed)))
    problems = tuple(_problems(links)) if trust else ()
    return Chain(str(path), tuple(links), metadata.rejected, metadata.uncertain, problems)


def delivered_metadata(folder: Path) -> Metadata:
    """The description of the model in a delivered folder, from its report."""
    path = folder / REPORT_NAME
    if not path.is_file():
        raise CheckpointError(
            f"{folder} holds no {REPORT_NAME}, so rcil-export did not deliver this folder",
            "Name a checkpoint (.safetensors), or a folder of rcil-export.",
        )
    try:
        document = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON", "Export the checkpoint again.") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise CheckpointError(f"{path} does not describe its model", "Export the checkpoint again with this version.")
    return parse_metadata(json.dumps(document["model"]), path)


def _judged(statement: Statement, trust: Sequence[Path], folder: Path | None = None) -> Signed:
    """Verify a statement if there are keys; the statement of a delivered `folder` with all files that it signs."""
    verified, problem = None, ""
    if trust:
        try:
            if folder is None:
                authenticate(statement.path, trust)
            else:
                verify(folder, trust)
            verified = True
        except TrustError as error:
            verified, problem = False, error.message
    return Signed(str(statement.path), statement.fingerprint, verified, problem)


def _problems(links: Sequence[Link]) -> list[str]:
    """One text per link that no verified statement covers."""
    problems = []
    for link in links:
        if any(signed.verified for signed in link.signed):
            continue
        why = "; ".join(signed.problem for signed in link.signed) or "not signed"
        problems.append(f"step {link.step} ({link.source}): {why}")
    return problems


def chain_lines(chain: Chain) -> list[str]:
    """The chain as text, one block per link."""
    lines = [chain.file]
    for link in chain.links:
        method = f", method {link.method}" if link.method else ""
        seed = "" if link.seed is None else f", seed {link.seed}"
        lines += ["", f"step {link.step}: {link.source}{method}{seed}"]
        lines += [f"  {name:11} {text}" for name, text in _facts(link).items()]
        lines += [f"  {'signed':11} {_signed_text(signed)}" for signed in link.signed]
        if not link.signed:
            lines.append(f"  {'signed':11} no statement was found")
    if not chain.links:
        lines.append("no lineage is recorded")
    for mark, reason in (("rejected", chain.rejected), ("uncertain", chain.uncertain)):
        if reason is not None:
            lines += ["", f"{mark}: {reason}"]
    return lines


def _facts(link: Link) -> dict[str, str]:
    facts = {}
    if link.taught:
        facts["taught"] = ", ".join(link.taught)
        counted = ", ".join(f"{count} {what}" for what, count in link.images.items())
        images = f"images: {counted}" if counted else "number of images not recorded"
        facts["data"] = "not recorded" if link.data_sha256 is None else f"sha256 {link.data_sha256}, {images}"
        facts["IoU"] = ", ".join(f"{name} {value:.1f} %" for name, value in link.iou.items()) or "not recorded"
        if link.parent_sha256 is not None:
            facts["lost"] = lost_text(link)
    if link.metrics:
        facts["measured"] = ", ".join(f"{name} {value:.4g}" for name, value in link.metrics.items())
    if link.sha256 is not None:
        facts["checkpoint"] = f"sha256 {link.sha256}"
    return facts


def lost_text(link: Link) -> str:
    """The IoU that earlier classes lost in a step, the greatest loss first."""
    if not link.lost:
        return "not recorded by class"
    worst = sorted(link.lost.items(), key=lambda item: -item[1])
    lost = ", ".join(f"{name} {value:.1f}" for name, value in worst if value > 0)
    gained = ", ".join(f"{name} {-value:.1f}" for name, value in worst if value < 0)
    return f"{f'{lost} points of IoU' if lost else 'nothing'}{f'; gained: {gained}' if gained else ''}"


def _signed_text(signed: Signed) -> str:
    state = {True: "verified", False: f"NOT VERIFIED: {signed.problem}", None: "not verified: no --trust was given"}
    return f"key {signed.fingerprint[:16]}… in {signed.file}, {state[signed.verified]}"
