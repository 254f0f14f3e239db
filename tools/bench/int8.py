"""Measure how int8 changes masks, by bits of the weights, calibration method and rounding of the weights.

Every form is the whole network in int8, with no conv left in fp32, in the form for CPUs, judged on images that did not
calibrate it. Exports use balanced rounding. Mean correction, which they do not use, takes from every bias what the
rounded weights add to the mean of its channel on the calibration images.

Example:
    python tools/bench/int8.py step1.safetensors camvid --size 180x240 --json int8.json
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from ratios import options_of, write_numbers

from rcil.checkpoint.file import load_for_inference
from rcil.nn import fold
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact
from rcil_export.checks.limits import limits_for
from rcil_export.checks.outputs.criterion import Criterion
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.nodes import constants_of
from rcil_export.graph.onnx_file import description_of
from rcil_export.graph.shapes import InputShape, parse_size
from rcil_export.precision.feeds import Feed, split_images
from rcil_export.precision.int8.cpu import for_cpu
from rcil_export.precision.int8.quantise import calibrate, quantise
from rcil_export.precision.record import CalibrationOptions, Method, WeightBits
from rcil_export.runtime.sessions import open_session

Array = NDArray[Any]
METHODS: tuple[Method, ...] = ("percentile", "entropy")
BITS: tuple[WeightBits, ...] = (7, 8)


def mean_inputs(document: onnx.ModelProto, feeds: Iterable[Feed]) -> dict[str, Array]:
    """The mean of every input channel [I] of every conv, by conv, over all images."""
    probe = onnx.ModelProto.FromString(document.SerializeToString())
    del probe.graph.output[:]
    convs = {node.name: node.input[0] for node in document.graph.node if node.op_type == "Conv"}
    probe.graph.initializer.append(numpy_helper.from_array(np.array([0, 2, 3], np.int64), "axes.mean"))
    for value in dict.fromkeys(convs.values()):
        name = f"{value}.mean"
        probe.graph.node.append(helper.make_node("ReduceMean", [value, "axes.mean"], [name], name=name, keepdims=0))
        probe.graph.output.append(helper.make_empty_tensor_value_info(name))
    session = open_session(probe)
    names = [output.name for output in session.get_outputs()]
    runs = [session.run(names, feed) for feed in feeds]
    means = {name: np.mean([run[at] for run in runs], axis=0) for at, name in enumerate(names)}
    return {conv: means[f"{value}.mean"] for conv, value in convs.items()}


def kernels(document: onnx.ModelProto) -> dict[str, tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Every conv in int8 with the node that reads its weights, by the conv's name."""
    made = {name: node for node in document.graph.node for name in node.output}
    constants = constants_of(document)
    pairs = ((node, made.get(node.input[1])) for node in document.graph.node if node.op_type == "Conv")
    return {conv.name: (conv, weight) for conv, weight in pairs if weight is not None and weight.input[0] in constants}


def rounding_errors(document: onnx.ModelProto, exact: onnx.ModelProto) -> dict[str, Array]:
    """Rounded minus fp32 weights [O, I, H, W] of every conv in int8."""
    constants, source = constants_of(document), constants_of(exact)
    errors = {}
    for name, (_, weight) in kernels(document).items():
        steps, scale = (numpy_helper.to_array(constants[key]).astype(np.float64) for key in weight.input[:2])
        right = numpy_helper.to_array(source[weight.input[0].removesuffix("_quantized")])
        errors[name] = steps * scale.reshape(-1, 1, 1, 1) - right
    return errors


def mean_corrected(document: onnx.ModelProto, exact: onnx.ModelProto, means: dict[str, Array]) -> onnx.ModelProto:
    """Return a copy whose biases compensate the mean error of the rounded weights."""
    copy = onnx.ModelProto.FromString(document.SerializeToString())
    constants = constants_of(copy)
    for name, error in rounding_errors(document, exact).items():
        conv = kernels(copy)[name][0]
        if len(conv.input) < 3:
            continue
        groups = next((a.i for a in conv.attribute if a.name == "group"), 1)
        inputs = np.repeat(means[name].reshape(groups, -1), len(error) // groups, axis=0)  # [O, I]
        bias = constants[conv.input[2]]
        values = numpy_helper.to_array(bias) - (error.sum((2, 3)) * inputs).sum(1)
        bias.CopyFrom(numpy_helper.from_array(values.astype(np.float32), bias.name))
    return copy


def at_nearest_steps(document: onnx.ModelProto, exact: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with all weights rounded to nearest, whatever their errors sum to."""
    copy = onnx.ModelProto.FromString(document.SerializeToString())
    constants, source = constants_of(copy), constants_of(exact)
    for _, weight in kernels(copy).values():
        tensor, scale = constants[weight.input[0]], numpy_helper.to_array(constants[weight.input[1]])
        right = numpy_helper.to_array(source[tensor.name.removesuffix("_quantized")])
        steps = np.rint(right / scale.reshape(-1, 1, 1, 1)).astype(np.int8)
        tensor.CopyFrom(numpy_helper.from_array(steps, tensor.name))
    return copy


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("images", type=Path, help="site folder; the val split measures, the rest calibrates")
    parser.add_argument("--size", default="512x512", help="height x width (default 512x512)")
    arguments = parser.parse_args()
    model, metadata = load_for_inference(arguments.checkpoint)
    interface = Interface(shape=InputShape.of(*parse_size(arguments.size)), precision="int8", runtime="cpu")
    exact = to_onnx(fold(model)[0], metadata, interface.model_copy(update={"precision": "fp32"}))
    images = split_images(arguments.images, None, metadata, interface)
    print(images.note)
    criterion = Criterion(
        CheckpointArtefact("the checkpoint", model, metadata), images.judged, limits_for("fp32", "int8")
    )
    means = mean_inputs(exact, images.feeds)
    rows = []
    for method in METHODS:
        calibration = calibrate(exact, images.feeds, CalibrationOptions(method))
        for bits in BITS:
            balanced = for_cpu(quantise(exact, calibration, bits).without(()))
            nearest = at_nearest_steps(balanced, exact)
            forms = {
                "nearest": nearest,
                "nearest, mean correction": mean_corrected(nearest, exact, means),
                "balanced": balanced,
                "balanced, mean correction": mean_corrected(balanced, exact, means),
            }
            for rounding, document in forms.items():
                with OnnxArtefact("int8", document, *description_of(document)) as artefact:
                    found = {f"{j.limit} {j.classes}": round(j.value, 3) for j in criterion.judge(artefact)}
                rows.append({"method": method, "bits": bits, "rounding": rounding, **found})
                values = ", ".join(f"{name} {found[name]:.2f}" for name in sorted(found))
                print(f"{method:11} {bits} bits  {rounding:26} {values}", flush=True)
    write_numbers(arguments.json, rows)


if __name__ == "__main__":
    main()
