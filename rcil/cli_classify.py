"""The command `rcil classify`: continual classification of whole images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.console import print_json
from rcil.errors import ConfigError


def classify(
    task: Annotated[Path, typer.Argument(help="A task file (YAML).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run, or of all runs.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key: method.rc=false.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Run EEIL and PODNet, each without and with RC, and tabulate.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with --compare.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Teach a classifier of whole images new classes step by step and report accuracy after each.

    Called again on the same folder it keeps the finished steps. The checkpoints go to `rcil-export`.

    Example: `rcil classify task.yaml -o run --set method.name=podnet`

    Example: `rcil classify task.yaml -o table --compare --seeds 3`
    """
    from rcil.classify.compare import compare_classify
    from rcil.classify.report import as_markdown
    from rcil.classify.run import run_classify
    from rcil.classify.task import load_classify_task
    from rcil.train.show import progress

    if seeds > 1 and not compare:
        raise ConfigError(f"--seeds {seeds} goes with --compare", "Choose another seed with --set seed=1.")
    loaded = load_classify_task(task, override)
    say = (lambda text: None) if as_json else typer.echo
    with progress(quiet=as_json) as listen:
        if compare:
            document = compare_classify(loaded, seeds, output, listen=listen, say=say)
        else:
            document = run_classify(loaded, output, listen=listen, say=say)
    if as_json:
        print_json(document)
    elif compare:
        typer.echo(as_markdown(document))
    else:
        typer.echo(f"average incremental accuracy {100 * document['average_incremental_accuracy']:.1f} %, in {output}")
