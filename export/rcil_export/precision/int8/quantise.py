"""fp32 graph -> int8 graph: ONNX Runtime's calibration and QDQ quantisation, in the form that TensorRT wants.

Everything is symmetric (zero point 0), weights per output channel, biases in fp32: the only form that TensorRT builds.
There is no Q/DQ pair between a conv and its activation, so that TensorRT fuses both into one int8 kernel; `for_cpu`
writes the form that ONNX Runtime's CPU kernels want.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, create_calibrator
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import TENSOR_NAME_QUANT_SUFFIX

from rcil.core.errors import ConfigError, RcilError, did_you_mean
from rcil_export.graph.lint import LAYER_OPS
from rcil_export.graph.nodes import activation_after, constants_of, readers_of, replace_nodes
from rcil_export.precision.feeds import Feed
from rcil_export.precision.int8.weights import round_weights, weight_scales
from rcil_export.precision.ranges import float_values
from rcil_export.precision.record import CalibrationOptions, Span, WeightBits, finish, fp32_interface

QUANTISED_OPS = sorted(LAYER_OPS)
"""Operators that are quantised. Normalisation, upsampling and argmax stay in fp32: int8 logits would tie."""


class _Once(CalibrationDataReader):  # type: ignore[misc]
    """One batch, as ONNX Runtime's calibration reads it."""

    def __init__(self, feed: Feed) -> None:
        self.left: list[Feed] = [feed]

    def get_next(self) -> Feed | None:
        return self.left.pop() if self.left else None


def calibrate(
    document: onnx.ModelProto, feeds: Iterable[Feed], options: CalibrationOptions | None = None
) -> dict[str, Span]:
    """Find the range of every value with ONNX Runtime's histograms.

    The batches are passed one at a time, because ONNX Runtime keeps all values of its input in memory.

    Args:
        document: In fp32.
        feeds: The user's images.
        options: How to choose ranges.
    """
    options = options or CalibrationOptions()
    extra: dict[str, Any] = {"symmetric": True}
    method = CalibrationMethod.Entropy
    if options.method == "percentile":
        method, extra["percentile"] = CalibrationMethod.Percentile, options.percentile
    with tempfile.TemporaryDirectory(prefix="rcil-int8-") as name, _silent():
        source = Path(name) / "fp32.onnx"
        onnx.save(document, source)
        calibrator = create_calibrator(
            source, QUANTISED_OPS, str(Path(name) / "outputs.onnx"), method, extra_options=extra
        )
        empty = True
        for feed in feeds:
            calibrator.collect_data(_Once(feed))
            empty = False
        if empty:
            raise RcilError("there is no image to calibrate with", "Give a folder with images of your site.")
        found = calibrator.compute_data()
    return {name: (float(found[name].lowest), float(found[name].highest)) for name in sorted(found)}


@dataclass(frozen=True)
class Quantised:
    """A graph with a Q/DQ pair at every possible value, from which variants with fewer pairs are derived."""

    source: onnx.ModelProto
    nodes: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...]
    """Including those of the source."""

    def without(self, exclude: Collection[str]) -> onnx.ModelProto:
        """The int8 graph in which these convs stay in fp32, each with the activation after it."""
        known = conv_names(self.source)
        unknown = sorted(set(exclude) - set(known))
        if unknown:
            raise ConfigError(f"the graph has no conv '{unknown[0]}'", did_you_mean(unknown[0], known))
        document = onnx.ModelProto.FromString(self.source.SerializeToString())
        del document.graph.initializer[:]
        document.graph.initializer.extend(self.constants)
        replace_nodes(document, _free_float_readers(self.source, self.nodes, with_activations(self.source, exclude)))
        return finish(document, "int8")


def quantise(document: onnx.ModelProto, ranges: Mapping[str, Span], bits: WeightBits = 8) -> Quantised:
    """Quantise every conv, sum and pooling once, which is slow for wide networks.

    ONNX Runtime inserts the pairs and rounds the weights; the weights are then rounded again, from their fp32 values.

    Args:
        document: In fp32; it is not changed.
        ranges: Of every value that can be quantised, by its name; from `calibrate`.
        bits: Number of bits of the weights. ONNX Runtime's own 7 bits are not symmetric, so they are not used.
    """
    fp32_interface(document, "int8")
    spans = {name: tuple(np.array(end, np.float32) for end in span) for name, span in ranges.items()}
    quantiser = QDQQuantizer(
        onnx.shape_inference.infer_shapes(document, strict_mode=True),
        True,  # per channel
        False,  # all 8 bits of the weights
        QuantType.QInt8,
        QuantType.QInt8,
        TensorsData(CalibrationMethod.MinMax, spans),
        [],
        _with_constants(document),
        QUANTISED_OPS,
        {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
    )
    with _silent():
        quantiser.quantize_model()
    graph: onnx.GraphProto = quantiser.model.model.graph
    added = {tensor.name: tensor for tensor in graph.initializer}
    _set_weights(graph, added, constants_of(document), bits)
    return Quantised(document, tuple(graph.node), tuple((added | constants_of(document)).values()))


def _with_constants(document: onnx.ModelProto) -> list[str]:
    """Sums with constants, which only other libraries' networks have; ONNX Runtime would round these like kernels."""
    constants = constants_of(document)
    sums = (node for node in document.graph.node if node.op_type in ("Add", "Concat"))
    return [node.name for node in sums if any(name in constants for name in node.input)]


def _set_weights(
    graph: onnx.GraphProto, added: dict[str, onnx.TensorProto], source: dict[str, onnx.TensorProto], bits: WeightBits
) -> None:
    """Round every quantised kernel and its scales in `added` from the fp32 kernel in `source`."""
    for node in graph.node:
        if node.op_type != "DequantizeLinear" or node.input[0] not in added:
            continue
        kernel = source[node.input[0].removesuffix(TENSOR_NAME_QUANT_SUFFIX)]
        weight = numpy_helper.to_array(kernel)
        scales = weight_scales(weight, bits)
        steps = round_weights(weight, scales, bits)
        added[node.input[0]].CopyFrom(numpy_helper.from_array(steps, node.input[0]))
        added[node.input[1]].CopyFrom(numpy_helper.from_array(scales, node.input[1]))


def conv_names(document: onnx.ModelProto) -> list[str]:
    """Convs in the order of execution."""
    return [node.name for node in document.graph.node if node.op_type == "Conv"]


def with_activations(document: onnx.ModelProto, convs: Collection[str]) -> set[str]:
    """The convs, and the activations that are their only readers."""
    readers = readers_of(document.graph.node)
    found = (activation_after(name, readers) for name in convs)
    return {*convs, *(node.name for node in found if node is not None)}


def _free_float_readers(
    document: onnx.ModelProto, nodes: Collection[onnx.NodeProto], left_out: set[str]
) -> list[onnx.NodeProto]:
    """Copies of the nodes, in which those that compute in fp32 read values and weights before their Q/DQ pair.

    These are nodes of pre- and postprocessing, excluded nodes, and activations, which run in the kernel of the conv
    before them. `replace_nodes` then drops the pairs that nobody reads any more.
    """
    readers = readers_of(document.graph.node)
    fused = {activation.name for name in float_values(document) if (activation := activation_after(name, readers))}
    original = {node.name: node for node in document.graph.node}
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    for node in copies:
        source = original.get(node.name)
        if source is not None and (source.op_type not in QUANTISED_OPS or node.name in left_out or node.name in fused):
            node.CopyFrom(source)
    return copies


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress the lines that ONNX Runtime's calibration prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
