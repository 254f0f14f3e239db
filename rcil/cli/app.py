"""The `rcil` command. Each function parses its options, calls one library function and renders the result."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rcil import defaults
from rcil.cli.announce import announce_inference
from rcil.cli.completion import CHECKPOINTS, files, one_of
from rcil.cli.console import make_app, make_notifier, print_json, progress_line, run
from rcil.cli.data import app as data_app
from rcil.cli.labelling import pick, prelabel
from rcil.cli.networks import ClassNames, FactoryArgs, attach, attach_file, parse_args
from rcil.cli.options import AsJson, Device, SiteData, TrainingScale, Trust, VoidBackground
from rcil.cli.resumable import resumable
from rcil.cli.site import add_class, refit
from rcil.cli.training import classify, compare, presets_app, train
from rcil.core.errors import ConfigError, TrustError
from rcil.hardware.cpu import tune_process
from rcil.hardware.devices import announce_device

app = make_app("rcil", "Teach a deployed segmentation model new classes and keep what it knew.")
app.add_typer(data_app)
app.command("add-class")(resumable()(add_class))
app.command()(attach)
app.command()(pick)
app.command()(prelabel)
app.command()(refit)
app.command()(resumable()(train))
app.command()(resumable(flag=None)(compare))
app.command()(resumable(flag=None)(classify))
app.add_typer(presets_app)

WeightFile = Annotated[
    Path,
    typer.Argument(
        help="A weight file: official RCIL, PLOP, MiB, ImageNet ResNet or EfficientNet-lite.",
        autocompletion=files(".pth", ".pt", ".tar", ".bin", ".safetensors"),
    ),
]
OutputStride = Annotated[
    int, typer.Option(help="8 or 16. It cannot be inferred from the weights.", autocompletion=one_of("8", "16"))
]
PoolWindow = Annotated[int, typer.Option(help="Evaluation window of the ASPP image pooling; 0 pools globally.")]
Norm = Annotated[
    str,
    typer.Option(
        help="'abs' and 'inplace' keep inplace-ABN's arithmetic; 'batch' converts it.",
        autocompletion=one_of("abs", "inplace", "batch"),
    ),
]
STATE_COLOURS = {"works": "green", "missing": "yellow", "broken": "red"}
"""Colours of `rcil doctor`."""


@app.command()
def info(
    model: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint (.safetensors) or, with --chain, a delivered folder.", autocompletion=files(*CHECKPOINTS)
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
    from rcil.model.header import read_header

    if chain:
        _show_chain(model, trust or [], as_json=as_json)
        return
    if trust:
        raise ConfigError("--trust needs --chain", "Add --chain.")
    header = read_header(model)
    if as_json:
        print_json(header.as_document(model))
        return
    from rcil.cli.tables import print_model

    print_model(model, header)


def _show_chain(model: Path, trust: list[Path], *, as_json: bool) -> None:
    from rcil.model.chain import chain_lines, chain_of

    found = chain_of(model, trust)
    if as_json:
        print_json(asdict(found))
    else:
        typer.echo("\n".join(chain_lines(found)))
    if found.problems:
        raise TrustError(
            f"the chain of {model} is not signed throughout: {'; '.join(found.problems)}",
            "Pass the keys of all signers with --trust, or sign the missing files with `rcil-export sign`.",
        )


@app.command("import")
def import_(
    source: WeightFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The checkpoint to write.")],
    names: ClassNames = "",
    output_stride: OutputStride = defaults.OUTPUT_STRIDE,
    pool_window: PoolWindow = defaults.POOL_WINDOW,
    norm: Norm = defaults.NORM,
    factory: Annotated[
        str | None,
        typer.Option(
            metavar="FACTORY", help="Import path of the builder of another library's network; see `rcil attach`."
        ),
    ] = None,
    args: FactoryArgs = "{}",
    as_json: AsJson = False,
) -> None:
    """Convert a weight file of another program into a checkpoint. Code inside the file is never run.

    The architecture (depth, classes, step) is inferred from the weights. With --factory, the file is a state dict or
    safetensors file of the network that the factory builds with --args.

    Example: `rcil import 15-5s-voc_RCIL_overlap_1.pth -o step1.safetensors --names voc`
    """
    from rcil.checkpoint.importers import import_file
    from rcil.data.class_names import read_names

    if factory is not None:
        metadata = attach_file(factory, parse_args(args), output, source, names)
    else:
        metadata = import_file(
            source,
            output,
            names=read_names(names) if names else None,
            output_stride=output_stride,
            pool_window=pool_window or None,
            norm=norm,
        )
    if as_json:
        from rcil.model.header import read_header

        print_json(read_header(output).as_document(output))
        return
    what = f"{len(metadata.classes)} classes, step {metadata.step}" if metadata.classes else "pretrained backbone"
    typer.echo(f"{output}: {metadata.architecture.backbone}, {what}")


@app.command("eval")
def eval_(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL", help="Checkpoints (.safetensors) of any form.", autocompletion=files(*CHECKPOINTS)
        ),
    ],
    data: SiteData,
    split: Annotated[str, typer.Option(help="The split to evaluate.")] = defaults.SPLIT,
    scale: TrainingScale = None,
    test_crop: Annotated[
        int | None,
        typer.Option(
            "--test-crop",
            min=32,
            help="Resize the shorter side to this many pixels and evaluate the square in the middle, as the published "
            "codes do with 512. By default whole images are evaluated.",
        ),
    ] = None,
    void_background: VoidBackground = False,
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
    announce_inference(device, models, scale, make_notifier(as_json=as_json))
    from rcil.cli.tables import print_models
    from rcil.report.models import as_document, evaluate_models

    if output is not None:
        from rcil.report.pages import Source, report_paths, write_report

        paths = report_paths(output)
    with progress_line("evaluating") as progress:
        evaluated = evaluate_models(
            models,
            data,
            split,
            scale=scale,
            test_crop=test_crop,
            void_background=void_background,
            device=device or "auto",
            draw=output is not None,
            progress=progress,
        )
    if output is not None:
        write_report(paths, evaluated, Source(data, split, test_crop))
    if as_json:
        print_json(as_document(evaluated))
    else:
        print_models(evaluated)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for site, models, picture and report.")] = Path(
        "demo"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only a few iterations, to test the installation.")
    ] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Teach the deployed model of a generated site one more class, export it, segment a video and show what changed.

    The model knows nine classes. The images of the new site have labels for vehicles only.

    Example: `rcil demo -o demo`
    """
    from rcil.cli.progress import progress
    from rcil.cli.tables import print_demo
    from rcil.demo.run import run as run_demo

    announce_device(device, make_notifier(as_json=as_json))
    watch = partial(progress, quiet=as_json)
    document = run_demo(output, quick=quick, device=device or "auto", say=make_notifier(as_json=as_json), watch=watch)
    if as_json:
        print_json(document)
    else:
        print_demo(document, output)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show what is installed, what works on this machine (GPU, TensorRT, providers, codecs), and how to get the rest.

    Example: `rcil doctor`
    """
    from rcil.cli.probes import examine

    findings = examine()
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("area", "what", "state", "found", "if you want it", title="What works here")
    for found in findings:
        colour = STATE_COLOURS[found.state]
        state = f"[{colour}]{found.state}[/{colour}]"
        table.add_row(found.area, found.name, state, escape(found.detail), escape(found.remedy))
    Console().print(table)


def main() -> None:
    """Entry point."""
    tune_process()
    run(app)
