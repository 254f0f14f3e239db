"""Measure the cost of the exported forms of one network, and of its final upsampling.

ResNet-101 with random weights after two continual steps: the folded ONNX graph against its plain twin, the graph with
both branches, int8, and torch eager (folded), one after the other in every round of one process, all in the form for
CPUs (`--for cpu`). Then, for 21 and 151 classes, the share of upsampling and argmax in the whole graph, in that form
and in the one that is right on every provider.

Examples:
    python tools/bench/export.py
    python tools/bench/export.py --whole
    python tools/bench/export.py --backbone resnet18 --size 256x256 --rounds 30 --json export.json
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from ratios import Ratio, options_of, record, write_numbers

from rcil.checkpoint.file import save
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import Segmenter, begin_step, build, fold, plain_twin
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface, Runtime
from rcil_export.graph.preprocessing import input_dims
from rcil_export.graph.shapes import InputShape, parse_size
from rcil_export.precision.feeds import find_feeds
from rcil_export.precision.int8.cpu import for_cpu
from rcil_export.precision.int8.quantise import calibrate, quantise
from rcil_export.runtime.sessions import open_session
from rcil_export.timing.interleaved import bootstrap_ratio, interleaved, percentiles, run_of


def network(backbone: str, first: int) -> tuple[Segmenter, Metadata]:
    """A network after two continual steps of one class each, `first` classes before them, with recalibrated norms."""
    torch.manual_seed(0)
    names = [[f"class {i}" for i in range(first)], ["new 1"], ["new 2"]]
    model = build(Architecture(backbone=backbone), names[:1])
    for step in names[1:]:
        with torch.no_grad():
            model.train()(torch.randn(2, 3, 128, 128))
        model = begin_step(model, step, rows="balanced")
    return model.eval(), Metadata(architecture=model.arch, classes=class_table(names), step=2)


def timed(
    documents: dict[str, onnx.ModelProto], threads: int, rounds: int, extra: dict[str, Callable[[], object]]
) -> dict[str, list[float]]:
    """Seconds of every run; the runs are interleaved."""
    runs: dict[str, Callable[[], object]] = {}
    for name, document in documents.items():
        session = open_session(document, threads)
        shape = [d.dim_value for d in document.graph.input[0].type.tensor_type.shape.dim]
        runs[name] = run_of(session, shape)
    return interleaved(runs | extra, rounds, 2)


def show(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Print and return medians, 95th percentiles, and the ratio to the first with its 95 % interval."""
    first = next(iter(times.values()))
    rows = {}
    for name, values in times.items():
        ratio, low, high = bootstrap_ratio(values, first)
        p50, p95, _ = (1000 * value for value in percentiles(values))
        rows[name] = {"p50_ms": p50, "p95_ms": p95, "ratio": ratio, "low": low, "high": high}
        print(f"  {name:28} {p50:9.1f} ms (95 %: {p95:9.1f})   {ratio:6.3f} of the first ({low:.3f} to {high:.3f})")
    return rows


def upsampling_share(
    backbone: str, classes: int, size: tuple[int, int], threads: int, rounds: int
) -> dict[str, object]:
    """Time the graph with and without its last nodes, in both forms."""
    model, metadata = network(backbone, classes - 2)
    folded = fold(model)[0]
    documents: dict[str, onnx.ModelProto] = {}
    forms: tuple[Runtime, ...] = ("cpu", "any")
    for form in forms:
        interface = Interface(shape=InputShape.of(*size), runtime=form)
        documents[form] = to_onnx(folded, metadata, interface)
    documents["without upsampling"] = cut_off(documents["any"])
    times = timed(documents, threads, rounds, {})
    print(f"{classes} classes")
    rows = show(times)
    base = rows["without upsampling"]["p50_ms"]
    for form in forms:
        rows[form]["share"] = 1 - base / rows[form]["p50_ms"]
        print(f"  form for {form}: upsampling and argmax take {rows[form]['share']:.1%} of the time")
    return dict(rows)


def cut_off(document: onnx.ModelProto) -> onnx.ModelProto:
    """The graph up to the low-resolution logits."""
    cut = onnx.ModelProto.FromString(document.SerializeToString())
    nodes = list(cut.graph.node)
    at = next(i for i, node in enumerate(nodes) if node.op_type == "Resize")
    del cut.graph.node[at:]
    del cut.graph.output[:]
    cut.graph.output.append(onnx.helper.make_tensor_value_info(nodes[at].input[0], onnx.TensorProto.FLOAT, None))
    return cut


def whole_export(backbone: str, size: tuple[int, int]) -> None:
    """Time and memory of a complete `rcil-export`: fp16, engine and all checks."""
    model, metadata = network(backbone, 19)
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "model.safetensors", model, metadata)
        del model
        sides = f"{size[0]}x{size[1]}"
        options = ["--size", sides, "--precision", "fp16", "--target", "onnx,engine", "--gpu", "sm86"]
        # With random weights, logits are nearly equal, so fp16 changes more pixels than in a trained network.
        options += ["--limits", "agreement=0.98,agreement_old_new=0.9"]
        command = [sys.executable, "-m", "rcil_export", f"{folder}/model.safetensors", "-o", f"{folder}/out", *options]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        stages = json.loads(Path(folder, "out", "report.json").read_text(encoding="utf-8"))["stages"]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = max(stage["peak_bytes"] or 0 for stage in stages) / 2**30
    print(
        f"{backbone}, {sides}: fold, ONNX, fp16, engine and all checks in {seconds:.0f} s, "
        f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time, {peak:.1f} GiB at most"
    )
    for stage in stages:
        size = (stage["peak_bytes"] or 0) / 2**30
        print(f"  {stage['name']:40} {stage['seconds']:7.1f} s {stage['processor_seconds']:7.1f} s {size:5.2f} GiB")


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backbone", default="resnet101")
    parser.add_argument("--size", default="512x512", help="height x width (default 512x512)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--whole", action="store_true", help="measure one whole export with all its checks instead")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    size = parse_size(arguments.size)
    if arguments.whole:
        whole_export(arguments.backbone, size)
        return
    interface = Interface(shape=InputShape.of(*size), runtime="cpu")
    model, metadata = network(arguments.backbone, 19)
    folded, twin = fold(model)[0], plain_twin(model).eval()
    twin.load_state_dict(folded.state_dict())
    exact = to_onnx(folded, metadata, interface)
    start = time.perf_counter()
    int8 = for_cpu(quantise(exact, calibrate(exact, find_feeds(None, metadata, interface)), 7).without(()))
    print(f"int8: calibrated and quantised in {time.perf_counter() - start:.0f} s")
    documents = {
        "folded": exact,
        "plain twin": to_onnx(twin, metadata, interface),
        "both branches": to_onnx(model, metadata, interface.model_copy(update={"folded": False})),
        "int8": int8,
    }
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 3, *size), np.float32))
    assert input_dims(interface.shape, interface) == [1, *size, 3]

    @torch.inference_mode()
    def eager() -> None:
        folded(x).argmax(1)

    print(
        f"{arguments.backbone}, {arguments.size}, {arguments.threads} threads, {arguments.rounds} rounds, interleaved"
    )
    rows = show(timed(documents, arguments.threads, arguments.rounds, {"torch eager, folded": eager}))
    ratios = {name: Ratio(row["ratio"], row["low"], row["high"]) for name, row in rows.items()}
    record(
        "export",
        {f"{name} / folded": ratios[name] for name in ("plain twin", "both branches", "torch eager, folded")}
        | {"folded / int8": ratios["int8"].inverse},
    )
    shares = {
        str(classes): upsampling_share(arguments.backbone, classes, size, arguments.threads, arguments.rounds)
        for classes in (21, 151)
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this script {peak:.1f} GiB")
    document = {"arguments": {**vars(arguments), "json": None}, "forms": rows, "upsampling": shares}
    write_numbers(arguments.json, document)


if __name__ == "__main__":
    main()
