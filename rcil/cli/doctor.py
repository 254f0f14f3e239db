"""The `rcil doctor` command."""

from __future__ import annotations

from rcil.cli.console import print_json
from rcil.cli.options import AsJson

COLOURS = {"works": "green", "missing": "yellow", "broken": "red"}


def doctor(as_json: AsJson = False) -> None:
    """Show what is installed, what works on this machine (GPU, TensorRT, providers, codecs), and how to get the rest.

    Example: `rcil doctor`
    """
    from rcil.cli.probes import as_document, examine

    findings = examine()
    if as_json:
        print_json(as_document(findings))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("area", "what", "state", "found", "if you want it", title="What works here")
    for found in findings:
        colour = COLOURS[found.state]
        state = f"[{colour}]{found.state}[/{colour}]"
        table.add_row(found.area, found.name, state, escape(found.detail), escape(found.remedy))
    Console().print(table)
