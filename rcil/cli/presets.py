"""The `rcil presets` commands: the paper's settings as task files."""

from __future__ import annotations

from typing import Annotated

import typer

from rcil.cli.completion import presets
from rcil.cli.console import print_json
from rcil.cli.options import AsJson

app = typer.Typer(name="presets", invoke_without_command=True)


@app.callback()
def list_presets(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """List the paper's settings. `rcil train` and `rcil compare` accept their names instead of a task file.

    Example: `rcil train voc-15-1-overlapped --set data.root=VOC2012 -o run`
    """
    if context.invoked_subcommand is not None:
        return
    from rcil.training.preset_summary import summaries

    found = [vars(summary) for summary in summaries()]
    if as_json:
        print_json(found)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for column in found[0]:
        table.add_column(column, justify="right" if column in ("steps", "classes") else "left")
    for row in found:
        table.add_row(*map(str, row.values()))
    Console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name listed by `rcil presets`.", autocompletion=presets)],
    as_json: AsJson = False,
) -> None:
    """Print a preset as YAML, to copy and edit.

    Example: `rcil presets show voc-15-1-overlapped > task.yaml`
    """
    from rcil.presets import preset_names, preset_text

    text = preset_text(name, "classify" if name in preset_names("classify") else ".")
    if as_json:
        import yaml

        print_json(yaml.safe_load(text))
    else:
        typer.echo(text, nl=False)
