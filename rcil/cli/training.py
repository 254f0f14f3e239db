"""The commands that train on a task: `rcil train`, `compare`, `classify` and `presets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import METHODS, files, presets, some_of
from rcil.cli.console import make_notifier, print_dry_run, print_json
from rcil.cli.options import AsJson, Device, DryRunFlag, Overrides, Resume, Seeds, TaskFile, with_device
from rcil.core.documents import comma_separated
from rcil.core.errors import ConfigError
from rcil.core.log import is_quiet
from rcil.hardware.devices import announce_device

presets_app = typer.Typer(name="presets", invoke_without_command=True)


def train(
    task: TaskFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")],
    override: Overrides = None,
    device: Device = None,
    resume: Resume = False,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Train all steps of a continual protocol and report IoU on the test split after each.

    A run can be interrupted at any time; --resume continues it with the same result. For several GPUs or cores:
    `torchrun --nproc-per-node 2 -m rcil train task.yaml -o run`.

    Example: `rcil train task.yaml -o run --set training.batch=8`
    """
    from rcil.cli.progress import announce_training, progress
    from rcil.cli.tables import print_estimate, print_results
    from rcil.core.files import check_writable
    from rcil.hardware.processes import leave, started
    from rcil.tasks.load import load_task, naming_lines
    from rcil.training.estimate import estimate
    from rcil.training.run import check_start, run_task

    loaded = load_task(task, with_device(override, device))
    if not dry_run:
        check_start(loaded, output)
    rank, processes = started()
    talks = rank == 0 and not as_json
    if dry_run:
        check_writable(output)
    if rank == 0:
        announce_training(loaded.training, processes, make_notifier(as_json=as_json))
    if rank == 0 and (dry_run or not (as_json or is_quiet())):
        with naming_lines(task):
            print_estimate(estimate(loaded, processes), as_json=as_json)
    if dry_run:
        return
    with naming_lines(task), progress(quiet=not talks) as listen:
        results = run_task(loaded, output, resume=resume, listen=listen)
    if talks:
        print_results(results, output)
    elif rank == 0:
        print_json(results)
    leave()


def compare(
    task: TaskFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all runs and the table.")],
    methods: Annotated[
        str, typer.Option(help="Comma-separated method names.", autocompletion=some_of(*METHODS))
    ] = "fine-tuning,mib,plop,rcil,joint",
    seeds: Seeds = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side; on a CPU, each has its share of the cores.")] = 1,
    override: Overrides = None,
    device: Device = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Run several methods on one task and tabulate mIoU after the last step, mean and deviation over seeds.

    Every cell is a separate run. After an interruption, the same command keeps finished cells and continues the rest.

    Example: `rcil compare task.yaml -o table --methods fine-tuning,mib,rcil --seeds 3 --jobs 2`
    """
    from rcil.cli.progress import progress
    from rcil.tasks.load import load_task, naming_lines
    from rcil.training.compare import as_markdown, comparison_dry_run
    from rcil.training.compare import compare as run_comparison

    names = comma_separated(methods)
    loaded = load_task(task, with_device(override, device))
    announce_device(loaded.training.device, make_notifier(as_json=as_json))
    if dry_run:
        with naming_lines(task):
            print_dry_run(comparison_dry_run(loaded, names, seeds, output), as_json=as_json)
        return
    with naming_lines(task), progress(quiet=as_json) as listen:
        say = make_notifier(as_json=as_json)
        document = run_comparison(loaded, names, seeds, output, jobs=jobs, listen=listen, announce=say)
    if as_json:
        print_json(document)
    else:
        typer.echo(as_markdown(document))


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
    from rcil.cli.progress import progress

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


@presets_app.callback()
def list_presets(context: typer.Context, as_json: AsJson = False) -> None:
    """List the paper's settings. `rcil train` and `rcil compare` accept their names instead of a task file.

    Example: `rcil train voc-15-1-overlapped --set data.root=VOC2012 -o run`
    """
    if context.invoked_subcommand is not None:
        return
    from rcil.tasks.preset_summary import summaries

    found = [vars(summary) for summary in summaries()]
    if as_json:
        print_json(found)
        return
    from rcil.cli.tables import print_rows

    print_rows(list(found[0]), [list(map(str, row.values())) for row in found], left=("name", "dataset", "protocol"))


@presets_app.command("show")
def show_preset(
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
