"""The command `rcil`: training side. Functions parse, call one library function and render; heavy imports inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli_data import app as data_app
from rcil.console import make_app, print_json, run
from rcil.errors import ConfigError, did_you_mean

app = make_app("rcil", "Teach a deployed segmentation model new classes and keep what it knew.")
app.add_typer(data_app)

NORMS = ("abs", "inplace", "batch")


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="A checkpoint (.safetensors).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what a checkpoint says about itself: classes, step, lineage, parameters, MACs, folded or not.

    Example: `rcil info model.safetensors`
    """
    from rcil.checkpoint.describe import as_document, as_tables
    from rcil.checkpoint.header import read_header

    header = read_header(model)
    if as_json:
        print_json(as_document(model, header))
        return
    from rich.console import Console

    for table in as_tables(model, header):
        Console().print(table)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="Weights: official RCIL, PLOP, MiB, ImageNet ResNet, lite0.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The checkpoint to write.")],
    names: Annotated[str, typer.Option(help="Class names: 'voc', 'cityscapes' or a text file, one a line.")] = "",
    output_stride: Annotated[int, typer.Option(help="8 or 16; weights do not tell.")] = 16,
    pool_window: Annotated[int, typer.Option(help="Evaluation window of the pooled path; 0 pools globally.")] = 32,
    norm: Annotated[
        str, typer.Option(help="'abs' or 'inplace' keep inplace-ABN's arithmetic, 'batch' converts.")
    ] = "abs",
) -> None:
    """Turn another program's weight file into a checkpoint. Code inside the file is never run.

    The architecture (depth, classes, step) is inferred from the weights.

    Example: `rcil import 15-5s-voc_RCIL_overlap_1.pth -o step1.safetensors --names voc`
    """
    if norm not in NORMS:
        raise ConfigError(f"unknown norm '{norm}'", did_you_mean(norm, NORMS))
    if output_stride not in (8, 16):
        raise ConfigError(f"output stride {output_stride} is not possible", "Choose 8 or 16.")
    from rcil.checkpoint.importers import import_file
    from rcil.class_names import read_names

    metadata = import_file(
        source,
        output,
        names=read_names(names) if names else None,
        output_stride=output_stride,
        pool_window=pool_window or None,
        norm=norm,  # type: ignore[arg-type]
    )
    what = f"{len(metadata.classes)} classes, step {metadata.step}" if metadata.classes else "pretrained backbone"
    typer.echo(f"{output}: {metadata.architecture.backbone}, {what}")


@app.command()
def train(
    task: Annotated[Path, typer.Argument(help="A task file (YAML).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key: training.batch=8.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in this folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train all steps of a continual protocol and report IoU on the test split after each.

    Interrupt it any time: with --resume it continues where it was, to the same result.

    Example: `rcil train task.yaml -o run --set training.batch=8`
    """
    from rcil.train.run import run_task
    from rcil.train.show import print_results, progress
    from rcil.train.task import load_task

    loaded = load_task(task, override)
    with progress(quiet=as_json) as listen:
        results = run_task(loaded, output, resume=resume, listen=listen)
    if as_json:
        print_json(results)
    else:
        print_results(results, output)


@app.command()
def compare(
    task: Annotated[Path, typer.Argument(help="A task file (YAML).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all runs and the table.")],
    methods: Annotated[str, typer.Option(help="Names with commas between.")] = "fine-tuning,mib,plop,rcil,joint",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 1,
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key: training.batch=8.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Run several methods on one task and tabulate mIoU after the last step, mean and deviation over seeds.

    Every cell is a run of its own: called again after an interruption, finished cells are kept, the rest continues.

    Example: `rcil compare task.yaml -o table --methods fine-tuning,mib,rcil --seeds 3`
    """
    from rcil.train.compare import as_markdown
    from rcil.train.compare import compare as run_comparison
    from rcil.train.show import progress
    from rcil.train.task import load_task

    names = [name.strip() for name in methods.split(",") if name.strip()]
    loaded = load_task(task, override)
    with progress(quiet=as_json) as listen:
        announce = (lambda text: None) if as_json else typer.echo
        document = run_comparison(loaded, names, seeds, output, listen=listen, announce=announce)
    if as_json:
        print_json(document)
    else:
        typer.echo(as_markdown(document))


@app.command("eval")
def eval_(
    model: Annotated[Path, typer.Argument(help="A checkpoint (.safetensors) of any form.")],
    data: Annotated[Path, typer.Option(help="A site folder: images/, masks/, classes.txt.")],
    split: Annotated[str, typer.Option(help="Which split.")] = "val",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the report as JSON here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure IoU per class and the mean over old, new and all classes; classes are matched by name.

    Example: `rcil eval step1.safetensors --data my_site --split val`
    """
    from rcil.checkpoint.file import load
    from rcil.console import progress_line, write_json
    from rcil.data.site import read_site
    from rcil.evaluate import evaluate
    from rcil.evaluate_table import print_report

    network, metadata = load(model)
    site = read_site(data)
    if split not in site.splits:
        raise ConfigError(f"{data} has no split '{split}'", did_you_mean(split, site.splits))
    with progress_line("evaluating") as progress:
        report = evaluate(network, metadata, site, site.splits[split], progress)
    if output is not None:
        write_json(output, report.as_document())
    if as_json:
        print_json(report.as_document())
    else:
        print_report(report)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for checkpoints, picture and report.")] = Path(
        "demo"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="A few iterations: shows that all works, learns nothing.")
    ] = False,
) -> None:
    """Run the whole chain on a generated yard: learn two classes, add a third, fold, check, draw.

    Example: `rcil demo -o demo`
    """
    from rcil.demo.render import progress_bars, results_table
    from rcil.demo.run import run as run_demo

    with progress_bars() as bars:
        document = run_demo(output, iterations=(2, 2) if quick else (120, 100), report=typer.echo, progress=bars)
    results_table(document, output)


def main() -> None:
    """Entry point."""
    run(app)
