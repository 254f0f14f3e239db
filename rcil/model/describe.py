"""Rendering a checkpoint's header as tables and as JSON. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from rcil.model.header import Header


def as_document(path: Path, header: Header) -> dict[str, Any]:
    """Everything as JSON-ready data."""
    return {
        "file": str(path),
        "bytes": header.file_bytes,
        "parameters": header.parameters,
        **header.metadata.model_dump(mode="json"),
    }


def as_tables(path: Path, header: Header) -> list[Table]:
    """The model, its classes and its lineage."""
    tables = [_model_table(path, header)]
    if header.metadata.classes:
        tables.append(_class_table(header))
    if header.metadata.lineage:
        tables.append(_lineage_table(header))
    return tables


def _model_table(path: Path, header: Header) -> Table:
    meta = header.metadata
    arch = meta.architecture
    table = Table(title=Text(str(path)), box=box.SIMPLE, show_header=False, title_justify="left")
    form = "folded" if arch.folded else "plain" if arch.rc is None else _rc_form(header)
    rows = {
        "kind": meta.kind,
        "backbone": f"{arch.backbone}{f' {arch.blocks}' if arch.blocks else ''}, output stride {arch.output_stride}",
        "form": form,
        "norm": "none" if arch.folded else arch.norm,
        "step": str(meta.step),
        "method": meta.method or "-",
        "parameters": f"{header.parameters:,}",
    }
    if cost := meta.cost:
        height, width = cost.size
        rows |= {
            f"MACs at {height}x{width}": f"{cost.macs / 1e9:.2f} G",
            "deployed (folded)": f"{cost.folded_parameters:,} parameters, {cost.folded_macs / 1e9:.2f} G MACs",
        }
    rows["input"] = f"{meta.colour_order}, mean {_numbers(meta.mean)}, std {_numbers(meta.std)}"
    rows["size"] = f"{header.file_bytes / 2**20:.1f} MiB"
    for key, value in rows.items():
        table.add_row(key, Text(value))
    if meta.rejected is not None:
        table.add_row(Text("rejected", style="bold red"), Text(meta.rejected, style="bold red"))
    return table


def _rc_form(header: Header) -> str:
    rc = header.metadata.architecture.rc
    assert rc is not None
    state = "merged" if rc.old == "merged" else "two norms"
    return f"two branches ({rc.mix}, old branch {state}{', frozen' if rc.frozen else ''})"


def _class_table(header: Header) -> Table:
    table = Table(title="classes", box=box.SIMPLE, title_justify="left")
    for column in ("id", "name", "step", "colour"):
        table.add_column(column)
    for c in header.metadata.classes:
        swatch = Text("██ ", style=f"rgb({c.colour[0]},{c.colour[1]},{c.colour[2]})")
        table.add_row(
            str(c.id), Text(c.name), str(c.step), swatch.append(" ".join(map(str, c.colour)), style="default")
        )
    return table


def _lineage_table(header: Header) -> Table:
    table = Table(title="lineage", box=box.SIMPLE, title_justify="left")
    for column in ("step", "source", "parent", "seed", "metrics"):
        table.add_column(column)
    for entry in header.metadata.lineage:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in entry.metrics.items())
        parent = (entry.parent_sha256 or "-")[:12]
        table.add_row(str(entry.step), Text(entry.source), parent, _seed(entry.seed), metrics or "-")
    return table


def _seed(seed: int | None) -> str:
    return "-" if seed is None else str(seed)


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.3f}" for value in values)
