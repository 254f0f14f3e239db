"""The `rcil` command. Each function parses its options, calls one library function and renders the result."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.classify import classify
from rcil.cli.completion import CHECKPOINTS, METHODS, files, one_of, some_of
from rcil.cli.console import make_app, make_notifier, print_dry_run, print_json, progress_line, run
from rcil.cli.data import app as data_app
from rcil.cli.doctor import doctor
from rcil.cli.options import (
    AsJson,
    Device,
    DryRunFlag,
    Overrides,
    Resume,
    Scale,
    Seeds,
    SiteData,
    TaskFile,
    Trust,
    with_device,
)
from rcil.cli.presets import app as presets_app
from rcil.cli.site import add_class, prelabel
from rcil.core.errors import ConfigError, TrustError, did_you_mean
from rcil.core.log import is_quiet
from rcil.hardware.devices import announce_device

app = make_app("rcil", "Teach a deployed segmentation model new classes and keep what it knew.")
app.add_typer(data_app)
app.command("add-class")(add_class)
app.command()(prelabel)
app.command()(classify)
app.command()(doctor)
app.add_typer(presets_app)

NORMS = ("abs", "inplace", "batch")


@app.command()
def info(
    model: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint (.safetensors) or, with --chain, a delivered folder.",
            autocompletion=files(*CHECKPOINTS),
        ),
    ],
    chain: Annotated[bool, typer.Option("--chain", help="Show every step: signer, data, method and losses.")] = False,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Show the metadata of a checkpoint: classes, step, lineage, parameters, MACs, and whether it is folded.

    --chain shows every step with its signer, data, method and losses. With --trust, the exit code is 12 unless every
    step was signed with one of the given keys.

    Examples:
        rcil info model.safetensors

        rcil info deployed --chain --trust key.pub
    """
    from rcil.model.describe import as_document, as_tables
    from rcil.model.header import read_header

    if chain:
        _show_chain(model, trust or [], as_json=as_json)
        return
    if trust:
        raise ConfigError("--trust needs --chain", "Add --chain.")
    header = read_header(model)
    if as_json:
        print_json(as_document(model, header))
        return
    from rich.console import Console

    for table in as_tables(model, header):
        Console().print(table)


def _show_chain(model: Path, trust: list[Path], *, as_json: bool) -> None:
    from rcil.model.chain import chain_lines, chain_of

    found = chain_of(model, trust)
    if as_json:
        print_json(found.as_document())
    else:
        typer.echo("\n".join(chain_lines(found)))
    if found.problems:
        raise TrustError(
            f"the chain of {model} is not signed throughout: {'; '.join(found.problems)}",
            "Pass the keys of all signers with --trust, or sign the missing files with `rcil-export sign`.",
        )


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="A weight file: official RCIL, PLOP, MiB, ImageNet ResNet or EfficientNet-lite0.",
            autocompletion=files(".pth", ".pt", ".tar", ".bin", ".safetensors"),
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The checkpoint to write.")],
    names: Annotated[
        str,
        typer.Option(
            help="Class names: 'voc', 'cityscapes' or a text file with one name per line.",
            autocompletion=one_of("voc", "cityscapes"),
        ),
    ] = "",
    output_stride: Annotated[
        int, typer.Option(help="8 or 16. It cannot be inferred from the weights.", autocompletion=one_of("8", "16"))
    ] = 16,
    pool_window: Annotated[
        int, typer.Option(help="Evaluation window of the ASPP image pooling; 0 pools globally.")
    ] = 32,
    norm: Annotated[
        str,
        typer.Option(
            help="'abs' and 'inplace' keep inplace-ABN's arithmetic; 'batch' converts it.",
            autocompletion=one_of(*NORMS),
        ),
    ] = "abs",
    as_json: AsJson = False,
) -> None:
    """Convert a weight file of another program into a checkpoint. Code inside the file is never run.

    The architecture (depth, classes, step) is inferred from the weights.

    Example: `rcil import 15-5s-voc_RCIL_overlap_1.pth -o step1.safetensors --names voc`
    """
    if norm not in NORMS:
        raise ConfigError(f"unknown norm '{norm}'", did_you_mean(norm, NORMS))
    if output_stride not in (8, 16):
        raise ConfigError(f"unsupported output stride {output_stride}", "Choose 8 or 16.")
    from rcil.checkpoint.importers import import_file
    from rcil.data.class_names import read_names

    metadata = import_file(
        source,
        output,
        names=read_names(names) if names else None,
        output_stride=output_stride,
        pool_window=pool_window or None,
        norm=norm,  # type: ignore[arg-type]
    )
    if as_json:
        from rcil.model.describe import as_document
        from rcil.model.header import read_header

        print_json(as_document(output, read_header(output)))
        return
    what = f"{len(metadata.classes)} classes, step {metadata.step}" if metadata.classes else "pretrained backbone"
    typer.echo(f"{output}: {metadata.architecture.backbone}, {what}")


@app.command()
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
    from rcil.cli.training import announce_training, print_estimate, print_results, progress
    from rcil.core.files import check_writable
    from rcil.hardware.processes import leave, started
    from rcil.training.estimate import estimate
    from rcil.training.run import check_start, run_task
    from rcil.training.task import load_task

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
        print_estimate(estimate(loaded, processes), as_json=as_json)
    if dry_run:
        return
    with progress(quiet=not talks) as listen:
        results = run_task(loaded, output, resume=resume, listen=listen)
    if talks:
        print_results(results, output)
    elif rank == 0:
        print_json(results)
    leave()


@app.command()
def compare(
    task: TaskFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all runs and the table.")],
    methods: Annotated[
        str, typer.Option(help="Comma-separated method names.", autocompletion=some_of(*METHODS))
    ] = "fine-tuning,mib,plop,rcil,joint",
    seeds: Seeds = 1,
    override: Overrides = None,
    device: Device = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Run several methods on one task and tabulate mIoU after the last step, mean and deviation over seeds.

    Every cell is a separate run. After an interruption, the same command keeps finished cells and continues the rest.

    Example: `rcil compare task.yaml -o table --methods fine-tuning,mib,rcil --seeds 3`
    """
    from rcil.cli.training import progress
    from rcil.training.compare import as_markdown, comparison_dry_run
    from rcil.training.compare import compare as run_comparison
    from rcil.training.task import load_task

    names = [name.strip() for name in methods.split(",") if name.strip()]
    loaded = load_task(task, with_device(override, device))
    announce_device(loaded.training.device, make_notifier(as_json=as_json))
    if dry_run:
        print_dry_run(comparison_dry_run(loaded, names, seeds, output), as_json=as_json)
        return
    with progress(quiet=as_json) as listen:
        document = run_comparison(loaded, names, seeds, output, listen=listen, announce=make_notifier(as_json=as_json))
    if as_json:
        print_json(document)
    else:
        typer.echo(as_markdown(document))


@app.command("eval")
def eval_(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL", help="Checkpoints (.safetensors) of any form.", autocompletion=files(*CHECKPOINTS)
        ),
    ],
    data: SiteData,
    split: Annotated[str, typer.Option(help="The split to evaluate.")] = "val",
    scale: Scale = 1.0,
    test_crop: Annotated[
        int | None,
        typer.Option(
            "--test-crop",
            min=32,
            help="Resize the shorter side to this many pixels and evaluate the square in the middle, as the published "
            "codes do with 512. By default whole images are evaluated.",
        ),
    ] = None,
    device: Device = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write the report to this JSON file, with an HTML page and plots next to it."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the IoU per class and the mean over old, new and all classes. Classes are matched by name.

    With several models, for example those of all steps, also show how the IoU changes from step to step.

    Example: `rcil eval run/step0.safetensors run/step1.safetensors --data my_site -o report.json`
    """
    announce_device(device, make_notifier(as_json=as_json))
    from rcil.cli.tables import print_models
    from rcil.report.models import as_document, evaluate_models

    if output is not None:
        from rcil.report.eval_report import Source, report_paths, write_report

        paths = report_paths(output)
    with progress_line("evaluating") as progress:
        evaluated = evaluate_models(
            models, data, split, scale=scale, test_crop=test_crop, device=device or "auto", progress=progress
        )
    if output is not None:
        write_report(paths, evaluated, Source(data, split, scale, test_crop))
    if as_json:
        print_json(as_document(evaluated))
    else:
        print_models(evaluated)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for checkpoints, picture and report.")] = Path(
        "demo"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only a few iterations, to test the installation.")
    ] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Run the whole chain on a generated site: learn two classes, add a third, fold, export, check and draw.

    The third class is added twice, with RCIL and with plain fine-tuning, to show what fine-tuning forgets.

    Example: `rcil demo -o demo`
    """
    from rcil.cli.tables import print_demo
    from rcil.cli.training import progress
    from rcil.demo.run import run as run_demo

    announce_device(device, make_notifier(as_json=as_json))
    watch = partial(progress, quiet=as_json)
    document = run_demo(output, quick=quick, device=device or "auto", say=make_notifier(as_json=as_json), watch=watch)
    if as_json:
        print_json(document)
    else:
        print_demo(document, output)


def main() -> None:
    """Entry point."""
    run(app)
