"""The `rcil classify` command: continual image classification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import files
from rcil.cli.console import make_notifier, print_dry_run, print_json
from rcil.cli.options import AsJson, Device, DryRunFlag, Overrides, Seeds, with_device
from rcil.core.errors import ConfigError
from rcil.hardware.devices import announce_device


def classify(
    task: Annotated[
        Path,
        typer.Argument(help="A task file (YAML), or the preset imagenet-100.", autocompletion=files(".yaml", ".yml")),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the run, or for all runs.")],
    override: Overrides = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare EEIL and PODNet, each without and with RC.")
    ] = False,
    seeds: Seeds = 1,
    device: Device = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Teach an image classifier new classes step by step and report the accuracy after each step.

    The same command on the same folder keeps finished steps. `rcil-export` exports the checkpoints.

    Example: `rcil classify task.yaml -o run --set method.name=podnet`

    Example: `rcil classify task.yaml -o table --compare --seeds 3`

    Example: `rcil classify imagenet-100 -o run --set data.root=imagenet-100`
    """
    from rcil.classify.compare import as_markdown, compare_classify
    from rcil.classify.run import dry_run as dry
    from rcil.classify.run import run_classify
    from rcil.classify.task import load_classify_task
    from rcil.cli.training import progress

    if seeds > 1 and not compare:
        raise ConfigError(f"--seeds {seeds} needs --compare", "Choose another seed with --set seed=1.")
    loaded = load_classify_task(task, with_device(override, device))
    announce_device(loaded.training.device, make_notifier(as_json=as_json))
    if dry_run:
        print_dry_run(dry(loaded, output, seeds, compare=compare), as_json=as_json)
        return
    say = make_notifier(as_json=as_json)
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
