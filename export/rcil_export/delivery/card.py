"""The model card: a Markdown page that is generated from the report; missing numbers are marked as missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rcil.core.files import sha256_of
from rcil.model.chain import Link, links_of, lost_text
from rcil.model.metadata import Metadata
from rcil_export.checks.result import FOR_INFORMATION

NOT_MEASURED = "not measured"
VERDICTS = {True: "passed", False: "FAILED", None: "not decided"}
OPTIONAL = {"latency": "Latency against the plain network", "memory": "Memory against the plain network"}
"""Checks that can be left out, by the prefix of their keys."""
SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def card_text(document: Mapping[str, Any], metadata: Metadata, files: Sequence[Path], *, signed: bool) -> str:
    """The whole page.

    Args:
        document: The report of the export.
        metadata: Of the deployed model; its last lineage entry is the export.
        files: The delivered files that are written already.
        signed: Whether the delivery will be signed.
    """
    names = {path.name for path in files}
    sections = [
        f"# Model card: step {metadata.step}, {len(metadata.classes)} classes",
        _mark(metadata),
        _table(("", ""), [(key, value) for key, value in document["facts"].items() if key not in names]),
        "## Classes",
        _classes(metadata),
        "## How it was taught",
        _teaching(links_of(metadata)),
        "## What was measured in training",
        _learned(links_of(metadata)),
        "## The delivered model against its checkpoint",
        _against_checkpoint(document["results"]),
        "## Checks",
        _checks(document["results"]),
        "## Limits",
        _limits(document, metadata),
        "## Files",
        _table(("file", "bytes", "sha256"), [_file(path) for path in files]),
        f"Made from the checkpoint with the sha256 {metadata.lineage[-1].parent_sha256}.",
        "## How to verify it",
        _how_to_verify(document, signed),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _mark(metadata: Metadata) -> str:
    """What the checks after training had against the model."""
    if metadata.rejected is not None:
        return f"**Rejected by a check after training:** {_plain(metadata.rejected)}"
    return "" if metadata.uncertain is None else f"**Uncertain after training:** {_plain(metadata.uncertain)}"


def _classes(metadata: Metadata) -> str:
    rows = [(c.id, c.name, c.step, " ".join(map(str, c.colour))) for c in metadata.classes]
    return _table(("id", "name", "step that taught it", "colour (RGB)"), rows)


def _teaching(links: Sequence[Link]) -> str:
    rows = [
        (
            link.step,
            link.source,
            link.method or "–",
            ", ".join(link.taught) or "–",
            ", ".join(f"{count} {what}" for what, count in link.images.items()) or "not recorded",
            link.data_sha256 or "not recorded",
        )
        for link in links
        if link.taught
    ]
    if not rows:
        return "No lineage is recorded."
    return _table(("step", "source", "method", "classes", "images", "sha256 of the data"), rows)


def _learned(links: Sequence[Link]) -> str:
    lines = []
    for link in links:
        if not link.taught:
            continue
        iou = ", ".join(f"{name} {value:.1f} %" for name, value in link.iou.items())
        text = f"IoU by class on its held-out images: {iou or 'not recorded'}."
        if link.parent_sha256 is not None:
            text += f" Lost since the step before: {lost_text(link)}."
        other = ", ".join(f"{name} {value:.4g}" for name, value in link.metrics.items())
        lines.append(f"- Step {link.step}: {_plain(text)}{f' Also recorded: {_plain(other)}.' if other else ''}")
    return "\n".join(lines) or "Nothing is recorded."


def _against_checkpoint(results: Sequence[Mapping[str, Any]]) -> str:
    """Mean IoU and agreement of old, new and all classes, where outputs were compared."""
    compared = next((result for result in results if "parts" in result), None)
    if compared is None:
        return "See the checks below."
    rows = []
    for part, numbers in compared["parts"].items():
        before, after, same = (numbers.get(key) for key in ("miou_first", "miou_second", "agreement"))
        rows.append((part, _percent(before), _percent(after), _percent(same, digits=4)))
    note = f"Compared on: {_plain(str(compared.get('images_from', 'not recorded')))}."
    if all(row[1] == NOT_MEASURED for row in rows):
        note += " Mean IoU was not measured: there were no masks. Give a site folder with `--images` to measure it."
    return _table(("classes", "mIoU of the checkpoint", "mIoU as delivered", "pixels of the same class"), rows, note)


def _percent(value: float | None, digits: int = 2) -> str:
    return NOT_MEASURED if value is None else f"{100 * value:.{digits}f} %"


def _checks(results: Sequence[Mapping[str, Any]]) -> str:
    items = [item for result in results for item in result["items"]]
    verdicts = [_verdict(item) for item in items]
    absent = [title for key, title in OPTIONAL.items() if not any(item["key"].startswith(key) for item in items)]
    summary = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
    rows = [(item["title"], _verdict(item), item["measured"]) for item in items]
    rows += [(title, "not run", "–") for title in absent]
    return _table(("check", "result", "measured"), rows, f"{summary}{f', {len(absent)} not run' if absent else ''}.")


def _verdict(item: Mapping[str, Any]) -> str:
    """The verdict of an item in words; a pass says whether it was proved or measured."""
    if item["passed"] is None and item["required"] == FOR_INFORMATION:
        return FOR_INFORMATION
    kind = item.get("kind") if item["passed"] else None
    return f"{VERDICTS[item['passed']]} ({kind})" if kind else VERDICTS[item["passed"]]


def _limits(document: Mapping[str, Any], metadata: Metadata) -> str:
    facts = document["facts"]
    lines = [
        f"- It takes images as the graph says: {_plain(facts.get('graph', 'not recorded'))}.",
        f"- It gives every {'pixel' if metadata.kind == 'segmenter' else 'image'} one of the {len(metadata.classes)} "
        "classes above, also where it sees something that it was not taught.",
        "- Numbers hold for the images they were measured on. Other cameras, places or seasons were not measured.",
    ]
    verdicts = [_verdict(item) for result in document["results"] for item in result["items"]]
    undecided = verdicts.count(VERDICTS[None])
    if undecided:
        lines.append(f"- {undecided} checks could not be decided here; the table above says why.")
    return "\n".join(lines)


def _file(path: Path) -> tuple[str, str, str]:
    return path.name, f"{path.stat().st_size:,}", sha256_of(path)


def _how_to_verify(document: Mapping[str, Any], signed: bool) -> str:
    checkpoint = document["facts"].get("checkpoint", "").partition(",")[0] or "CHECKPOINT"
    commands = {"sha256sum model.onnx": "compare with the table above"}
    if signed:
        commands["rcil-export verify-signature . --trust key.pub"] = "all files are as they were signed"
        commands["rcil info . --chain --trust key.pub"] = "the steps that led here, and who signed them"
    commands[f"rcil-export verify . {checkpoint}"] = "all files are what the checkpoint gives, without trust in anyone"
    commands[f"rcil-export check {checkpoint} model.onnx"] = "the same outputs as the checkpoint"
    width = max(map(len, commands))
    block = "\n".join(f"{command:{width}}  # {why}" for command, why in commands.items())
    return f"{'' if signed else 'This delivery is not signed.'}\n\n```\n{block}\n```".strip()


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    body = [f"| {' | '.join(_plain(str(cell)) for cell in row)} |" for row in rows]
    return "\n".join([*([note, ""] if note else []), *head, *body])


def _plain(text: str) -> str:
    """Text in one line with all special characters of Markdown escaped."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
