"""The command `rcil-export`: parsing options, calling the library, printing results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rcil.cli.completion import CHECKPOINTS, files, some_of
from rcil.cli.console import (
    DefaultCommand,
    make_app,
    make_notifier,
    print_dry_run,
    print_json,
    progress_line,
    run,
    stage_lines,
)
from rcil.core.documents import comma_separated, write_json
from rcil.core.errors import ConfigError
from rcil.hardware.cpu import tune_process
from rcil_export.cli import options as o
from rcil_export.cli.delivered import sign, verify, verify_signature
from rcil_export.cli.graphs import adopt, prelabel
from rcil_export.delivery import FAILED_HTML_NAME
from rcil_export.delivery.folder import Signing
from rcil_export.graph.interface import GraphOptions
from rcil_export.request import AUTO, MAX_CHECK_IMAGES, TARGETS, Request
from rcil_export.triton.serving import Serving, parse_devices

app = make_app(
    "rcil-export",
    "Convert a checkpoint into its deployed form and check that its outputs did not change.\n\n"
    "Without a command: fold, ONNX, engine, checks and report in one run; see `rcil-export export --help`.\n\n"
    "Example: `rcil-export step1.safetensors -o deployed --size 512x1024 --precision fp16`",
    DefaultCommand,
)


@app.command()
def export(
    model: o.Model,
    output: o.OutputFolder,
    size: o.Size = None,
    scale: o.InputScale = None,
    dynamic: o.Dynamic = None,
    batch: o.Batch = GraphOptions.batch,
    precision: o.PrecisionName = GraphOptions.precision,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="onnx; onnx,engine; or auto: onnx, and an engine where TensorRT can build one.",
            autocompletion=some_of(AUTO, *TARGETS),
        ),
    ] = AUTO,
    gpu: o.Gpus = "",
    flavour: o.Flavour = Request.flavour,
    timing_cache: o.TimingCache = Request.timing_cache,
    outputs: o.OutputNames = GraphOptions.outputs,
    kind: o.InputName = GraphOptions.input,
    opset: o.OpsetNumber = None,
    runtime: o.RuntimeName = GraphOptions.runtime,
    calibrate: o.Calibrate = None,
    calibration: o.CalibrationMethod = Request.calibration,
    vnni: o.VnniChoice = None,
    images: o.Images = None,
    previous: Annotated[
        Path | None,
        typer.Option(
            help="The checkpoint of the step before, to report what changed.", autocompletion=files(*CHECKPOINTS)
        ),
    ] = None,
    parent: Annotated[Path | None, typer.Option(hidden=True, help="The former name of --previous.")] = None,
    limits: o.LimitTexts = "",
    rounds: Annotated[int, typer.Option(min=0, help="Timed runs of the latency check; 0: none.")] = Request.rounds,
    triton: Annotated[Path | None, typer.Option(help="Also publish in this Triton model repository.")] = None,
    name: Annotated[str, typer.Option(help="Name of the model in the Triton repository.")] = Request.name,
    triton_instances: o.TritonInstances = None,
    triton_device: o.TritonDevice = Serving.kind,
    triton_threads: o.TritonThreads = None,
    triton_accelerator: o.TritonAccelerator = Serving.accelerator,
    triton_cache: o.TritonCache = Serving.cache,
    sign: o.SignKey = None,
    sign_password: o.SignPassword = None,
    trust: o.Trust = None,
    force: o.Force = Request.force,
    dry_run: o.DryRunFlag = False,
    as_json: o.AsJson = False,
) -> None:
    """Fold, convert to ONNX, build the engine, check everything, and write a report.

    An engine is built by default where TensorRT can build one: TensorRT-RTX anywhere, classic TensorRT on a machine
    with a GPU. --target onnx leaves it out, and --target engine fails without it.

    Writes model.onnx, model.engine with its sidecar, report.json, report.html and model_card.md; with --sign also
    model.sig over all of them. If a check fails, only report.failed.json and report.failed.html are written,
    files of an earlier export stay, and the exit code is 5.

    A classifier of `rcil classify` is exported in the same way: fp32, at the size of its training images, with the
    outputs label and scores.

    Example: `rcil-export step1.safetensors -o deployed --size 512x1024 --gpu sm86,sm89`
    """
    from rcil_export.checks.limits import parse_limits
    from rcil_export.checks.report import as_text
    from rcil_export.input_size import with_size
    from rcil_export.resources import stages_text
    from rcil_export.run import CheckFailedError, interface_of, run_export
    from rcil_export.run import dry_run as plan_export
    from rcil_export.targets import choose_targets

    notify = make_notifier(as_json=as_json)
    options = GraphOptions(size, dynamic, batch, precision, outputs, kind, opset, runtime)
    options = with_size(options, model, images or calibrate, scale, notify)
    serving = Serving(triton_instances, *parse_devices(triton_device), triton_threads, triton_accelerator, triton_cache)
    interface = interface_of(model, options)
    targets = choose_targets(target, interface, flavour=flavour, gpus=comma_separated(gpu))
    request = Request(
        model=model,
        output=output,
        interface=interface,
        targets=targets.names,
        targets_reason=targets.reason,
        flavour=flavour,
        gpus=comma_separated(gpu),
        timing_cache=timing_cache,
        calibrate=calibrate,
        calibration=calibration,
        vnni=vnni,
        images=images,
        parent=previous or parent,
        limits=parse_limits(limits),
        rounds=rounds,
        triton=triton,
        name=name,
        serving=serving,
        signing=Signing(sign, sign_password if sign is not None else None, tuple(trust or ())),
        force=force,
    )
    if dry_run:
        print_dry_run(plan_export(request), as_json=as_json)
        return
    with stage_lines("reading", notify) as (begin, bar):
        exported = run_export(request, begin, lambda phase, done, total: bar(done, total))
    if as_json:
        print_json(exported.document)
    else:
        typer.echo(as_text(exported.results))
        notify(stages_text(exported.stages))
        typer.echo("\n".join(f"  {path}" for path in exported.files.values()))
    if not exported.ok:
        raise CheckFailedError(
            f"the export of {model} did not pass its checks",
            f"Nothing but the report was written: see {output / FAILED_HTML_NAME}. Limits can be set with --limits.",
        )


@app.command()
def fold(
    model: o.Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folded checkpoint to write.")],
    device: o.Device = None,
    force: o.Force = Request.force,
    as_json: o.AsJson = False,
) -> None:
    """Fold every RC block into one conv and every norm into its conv; write only if the outputs agree.

    A report is written beside the output as NAME.fold.json. A checkpoint that `rcil add-class` marked as rejected is
    refused with exit code 8.

    Example: `rcil-export fold step1.safetensors -o deployed.safetensors`
    """
    from rcil_export.fold_checkpoint import fold_checkpoint

    with progress_line("folding"):
        document = fold_checkpoint(model, output, force=force, device=device or "auto").as_document()
    write_json(output.with_suffix(".fold.json"), document)
    if as_json:
        print_json(document)
        return
    typer.echo(f"{output}: {document['rc_blocks']} RC blocks folded, {document['layers_folded']} layers in all")
    typer.echo(f"  largest error        {document['relative_error']:.1e} of the logit range")
    typer.echo(f"  same class           {document['argmax_agreement']:.4%} of pixels")
    typer.echo(f"  parameters           {document['parameters']:,} = plain network's {document['plain_parameters']:,}")
    typer.echo(f"  multiply-accumulates {document['macs']:,} = plain network's {document['plain_macs']:,}")


@app.command()
def onnx(
    model: o.Model,
    path: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file to write.")],
    size: o.Size = None,
    scale: o.InputScale = None,
    dynamic: o.Dynamic = None,
    batch: o.Batch = GraphOptions.batch,
    precision: o.PrecisionName = GraphOptions.precision,
    outputs: o.OutputNames = GraphOptions.outputs,
    kind: o.InputName = GraphOptions.input,
    opset: o.OpsetNumber = None,
    runtime: o.RuntimeName = GraphOptions.runtime,
    calibrate: o.Calibrate = None,
    calibration: o.CalibrationMethod = Request.calibration,
    vnni: o.VnniChoice = None,
    miou_drop: Annotated[
        float | None, typer.Option(min=0, help="Points of mIoU that int8 may lose. [default: 1]")
    ] = None,
    limits: o.LimitTexts = "",
    force: o.Force = Request.force,
    as_json: o.AsJson = False,
) -> None:
    """Write only the ONNX graph; check it with `rcil-export check`.

    Example: `rcil-export onnx step1.safetensors -o model.onnx --dynamic 256x256:512x1024:1024x2048 --batch 1:4:8`
    """
    from rcil.core.files import check_other_file
    from rcil_export.checks.limits import limits_for, parse_limits
    from rcil_export.convert import check_vnni, convert, deployed_metadata
    from rcil_export.fold_checkpoint import load_deployable
    from rcil_export.graph.interface import make_interface
    from rcil_export.graph.onnx_file import write_onnx
    from rcil_export.input_size import with_size
    from rcil_export.precision.record import CalibrationOptions

    check_other_file(path, model, "the checkpoint it is made from")
    options = GraphOptions(size, dynamic, batch, precision, outputs, kind, opset, runtime)
    say = make_notifier(as_json=as_json)
    interface = make_interface(with_size(options, model, calibrate, scale, say))
    changes = parse_limits(limits) | ({} if miou_drop is None else {"miou_drop": miou_drop})
    target_vnni = check_vnni(vnni, interface)
    network, metadata = load_deployable(model, force=force)
    with stage_lines("converting", say) as (begin, _):
        converted = convert(
            network,
            deployed_metadata(metadata, model),
            interface,
            calibrate=calibrate,
            limits=limits_for("fp32", "int8", changes) if precision == "int8" else None,
            calibration=CalibrationOptions(calibration),
            vnni=target_vnni,
            say=begin,
        )
    write_onnx(path, converted.document)
    document = {"file": str(path), "interface": interface.model_dump(), "conversion": converted.notes}
    if as_json:
        print_json(document)
    else:
        typer.echo(f"{path}: {precision}, {interface.shape}, {len(converted.document.graph.node)} nodes")


@app.command()
def engine(
    graph: Annotated[
        Path, typer.Argument(metavar="ONNX", help="A file that rcil-export made.", autocompletion=files(".onnx"))
    ],
    path: Annotated[Path, typer.Option("-o", "--output", help="The engine to write; its sidecar goes beside it.")],
    gpu: o.Gpus = "",
    flavour: o.Flavour = Request.flavour,
    timing_cache: o.TimingCache = Request.timing_cache,
    as_json: o.AsJson = False,
) -> None:
    """Build a TensorRT engine from an ONNX file of a segmenter or classifier, in the precision of the file.

    TensorRT-RTX needs no GPU to build, for any of its GPUs; classic TensorRT builds for the GPU it runs on.

    Example: `rcil-export engine model.onnx -o model.engine --gpu sm86,sm89`
    """
    from rcil_export.engine.build import EngineOptions, build_engine
    from rcil_export.graph.description import parse_any_description
    from rcil_export.graph.onnx_file import load_document, texts_of
    from rcil_export.runtime.forms import check_engine_form

    interface = parse_any_description(texts_of(load_document(graph)), graph).interface
    check_engine_form(interface, graph)
    build = EngineOptions(
        precision=interface.precision,
        flavour=flavour,
        gpus=comma_separated(gpu),
        profile=interface.shape.profile,
        timing_cache=timing_cache,
    )
    with progress_line("engine") as bar:
        sidecar = build_engine(graph, path, build, lambda phase, done, total: bar(done, total))
    if as_json:
        print_json(sidecar.model_dump())
    else:
        typer.echo(f"{path}: {sidecar.precision} for {', '.join(sidecar.gpus)}, {sidecar.flavour} {sidecar.version}")


@app.command()
def check(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="The reference: a checkpoint, ONNX file or engine.", autocompletion=o.ARTEFACTS
        ),
    ],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="The file that is checked against it.", autocompletion=o.ARTEFACTS)
    ],
    images: o.Images = None,
    scale: o.TrainingScale = None,
    bisect: Annotated[
        bool, typer.Option(help="Also compare layer by layer and name the first layer that differs by itself.")
    ] = True,
    limits: o.LimitTexts = "",
    max_images: o.MaxImages = MAX_CHECK_IMAGES,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with pictures.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Compare two artefacts: structure, description, and on images logits, masks, mIoU. Exit code 5 if they differ.

    ONNX files are compared node for node with the plain network that they describe, and run in batches of different
    images and at several sizes if they take them. Of a classifier, give the checkpoint first and its ONNX file second.

    Example: `rcil-export check step1.safetensors model.onnx --images my_site --html check.html`
    """
    from rcil_export import api
    from rcil_export.checks.limits import parse_limits
    from rcil_export.checks.report import as_document, as_text, write_html
    from rcil_export.run import CheckFailedError

    changes = parse_limits(limits)
    with progress_line("comparing") as progress:
        results, outputs = api.check(
            first,
            second,
            images=images,
            scale=scale,
            limits=changes,
            max_images=max_images,
            bisect=bisect,
            progress=progress,
        )
    reports = [] if outputs is None else [outputs]
    if html is not None:
        facts = {"reference": str(first), "checked": str(second)}
        if outputs is not None:
            facts["images"] = outputs.images_from
        write_html(html, f"{second.name} against {first.name}", facts, results, reports)
    if as_json:
        print_json(as_document(results, reports))
    else:
        typer.echo(as_text(results))
    if not all(result.ok for result in results):
        raise CheckFailedError(
            f"{second} differs from {first}", "What failed is named above. Limits can be set with --limits."
        )


app.command()(verify)
app.command()(sign)
app.command()(verify_signature)
app.command()(adopt)
app.command()(prelabel)


@app.command()
def bench(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...", help="Checkpoints and ONNX files.", autocompletion=files(*CHECKPOINTS, ".onnx")
        ),
    ],
    size: o.Size = None,
    batch: Annotated[int, typer.Option(min=1, help="Images at once.")] = 1,
    rounds: Annotated[int, typer.Option(min=2, help="Timed runs of each.")] = 60,
    warmup: Annotated[int, typer.Option(min=0, help="Runs before the first timed one.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each runtime.")] = 1,
    device: o.DeviceName = "cpu",
    clock: Annotated[
        Literal["wall", "processor"], typer.Option(help="processor: for comparisons on a shared machine.")
    ] = "wall",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the numbers here as JSON.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Time models in one interleaved run: p50, p95, p99, images per second, ratios with their interval.

    A checkpoint is timed folded, as its plain twin, with both branches, and in torch.

    Example: `rcil-export bench step1.safetensors deployed/model.onnx --size 512x512 --threads 2`
    """
    from rcil_export.graph.interface import make_interface
    from rcil_export.runtime.devices import gpu_number
    from rcil_export.runtime.providers import provider_of
    from rcil_export.timing.bench import BenchOptions
    from rcil_export.timing.bench import bench as run_bench
    from rcil_export.timing.interleaved import LatencyOptions

    shaped = size is not None or batch != 1
    interface = make_interface(GraphOptions(size, batch=str(batch))) if shaped else None
    if gpu_number(device):
        raise ConfigError(
            f"bench runs on the first GPU, not on {device}", f"Set CUDA_VISIBLE_DEVICES={gpu_number(device)}."
        )
    timing = LatencyOptions(rounds=rounds, warmup=warmup, threads=threads, providers=(provider_of(device),))
    with progress_line("timing"):
        report = run_bench(models, BenchOptions(interface=interface, timing=timing, clock=clock))
    if output is not None:
        write_json(output, report.as_document())
    if as_json:
        print_json(report.as_document())
    else:
        typer.echo(report.as_text())


@app.command()
def inspect(
    artefact: Annotated[Path, typer.Argument(help="A checkpoint, ONNX file or engine.", autocompletion=o.ARTEFACTS)],
    as_json: o.AsJson = False,
) -> None:
    """Show what a file says about itself: classes with their colours, mean, sizes, precision, lineage.

    Example: `rcil-export inspect model.onnx`
    """
    from rcil_export.inspect_file import describe, lines

    document: dict[str, Any] = describe(artefact)
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(lines(document)))


def main() -> None:
    """Entry point."""
    tune_process()
    run(app)
