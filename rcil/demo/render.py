"""What the demo shows on the terminal at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def results_table(document: dict[str, Any], output: Path) -> None:
    """IoU of every class after each training, then where to look."""
    *_, last = document["iou"].values()
    table = Table(title="IoU on images that no training saw, %", box=box.SIMPLE, title_justify="left")
    for column in ("", *last):
        table.add_column(column, justify="right" if column else "left")
    for title, values in document["iou"].items():
        table.add_row(title, *("-" if values.get(name) is None else f"{values[name]:.1f}" for name in last))
    console = Console(markup=False)
    console.print(table)
    for name, reason in document["verdicts"].items():
        console.print(f"{name}: {'accepted' if reason is None else f'rejected by the gate, {reason}'}")
    fold = document["fold"]
    console.print(
        f"deployed: {fold['rc_blocks']} RC blocks folded, error {fold['relative_error']:.0e} of the logit range, "
        f"{fold['parameters']:,} parameters and {fold['macs'] / 1e9:.2f} G MACs, exactly those of a plain network"
    )
    export = document["export"]
    passed = sum(verdict is True for verdict in export["checks"].values())
    console.print(f"exported: {export['target']}; {passed} checks passed; see {output / 'export' / 'report.html'}")
    console.print(
        f"video: {document['video']['frames']} frames; see {output / 'video.mp4'}, {output / 'diff' / 'diff.html'}"
    )
    console.print(
        f"look at {output / 'demo.jpg'}, {output / 'forgetting.png'} and {output / 'rcil' / 'report.html'}; "
        f"numbers in {output / 'report.json'}",
        soft_wrap=True,
    )
