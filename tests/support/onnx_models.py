"""Tiny ONNX segmenters, written node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Precision = Literal["fp32", "fp16", "bf16", "int8"]

_HALF = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_CLASSES, _CHANNELS, _HEIGHT, _WIDTH = 4, 8, 32, 48


@dataclass
class _Graph:
    """Nodes and initialisers in the order in which they were added."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, array: np.ndarray) -> str:
        self.values.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{output}_{op}", **attributes))
        return output

    def cast(self, source: str, output: str, to: int) -> str:
        return self.add("Cast", [source], output, to=to)

    def quantised(self, source: str, output: str, scale: float) -> str:
        """A symmetric per-tensor int8 round trip."""
        both = [self.constant(f"{output}_scale", np.float32(scale)), self.constant(f"{output}_zero", np.int8(0))]
        self.add("QuantizeLinear", [source, *both], f"{output}_q")
        return self.add("DequantizeLinear", [f"{output}_q", *both], output)


def segmenter(
    path: Path,
    *,
    precision: Precision = "fp32",
    dynamic: bool = False,
    image: Literal["uint8", "float32"] = "uint8",
    head: Literal["nchw", "nhwc"] = "nchw",
    auto_pad: bool = False,
    opset: int = 20,
    classifier: Precision | None = None,
    quantised_input: bool = True,
    metadata: Mapping[str, str] | None = None,
    unsupported: bool = False,
) -> Path:
    """Write a segmenter of two convs with a stride of 2 and return its path.

    Input `image`: uint8 [N, 32, 48, 3] or float32 [N, 3, 32, 48], N = 1, or with N, height and width left open.
    Outputs: `mask` uint8 [N, H, W] and `confidence` float32 [N, H, W].

    Args:
        path: The file to write.
        precision: Type of the convs; for `int8` their inputs and weights go through symmetric Q/DQ pairs.
        dynamic: Leave batch, height and width open.
        image: Type and layout of the input.
        head: Layout in which logits are resized and reduced.
        auto_pad: Pad the first conv with SAME_UPPER in place of explicit pads.
        opset: The ONNX opset.
        classifier: Type of the last conv where it differs.
        quantised_input: Whether `int8` quantises the inputs of convs, and not their weights alone.
        metadata: Key and value pairs that the file carries.
        unsupported: Add an op that TensorRT has no layer for (Det); the file is for parsers only.
    """
    random = np.random.default_rng(0)
    graph = _Graph()
    x = "image"
    if image == "uint8":
        x = graph.cast(x, "as_float", TensorProto.FLOAT)
        x = graph.add("Transpose", [x], "planes", perm=[0, 3, 1, 2])
    mean = graph.constant("mean", np.full((1, 3, 1, 1), 127, np.float32))
    x = graph.add("Sub", [x, mean], "centred")
    x = graph.add("Mul", [x, graph.constant("inverse_std", np.full((1, 3, 1, 1), 1 / 128, np.float32))], "normalised")
    pads: dict[str, object] = {"auto_pad": "SAME_UPPER"} if auto_pad else {"pads": [1, 1, 1, 1]}
    stem = _Conv(precision, quantised_input, random.normal(0, 0.3, (_CHANNELS, 3, 3, 3)))
    x = stem.add_to(graph, x, "stem", strides=[2, 2], **pads)
    x = graph.add("LeakyRelu", [x], "active", alpha=0.01)
    if unsupported:
        x = graph.add("Det", [x], "determinant")
    last = _Conv(classifier or precision, quantised_input, random.normal(0, 1, (_CLASSES, _CHANNELS, 1, 1)))
    x = graph.cast(last.add_to(graph, x, "classifier"), "small_logits", TensorProto.FLOAT)
    _head(graph, x, head, dynamic, nhwc_image=image == "uint8")

    n, h, w = ("N", "H", "W") if dynamic else (1, _HEIGHT, _WIDTH)
    if image == "uint8":
        entry = helper.make_tensor_value_info("image", TensorProto.UINT8, [n, h, w, 3])
    else:
        entry = helper.make_tensor_value_info("image", TensorProto.FLOAT, [n, 3, h, w])
    outputs = [
        helper.make_tensor_value_info("mask", TensorProto.UINT8, [n, h, w]),
        helper.make_tensor_value_info("confidence", TensorProto.FLOAT, [n, h, w]),
    ]
    made = helper.make_graph(graph.nodes, "segmenter", [entry], outputs, graph.values)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    helper.set_model_props(model, dict(metadata or {}))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


@dataclass(frozen=True)
class _Conv:
    """A conv with a bias. For int8 TensorRT wants weights as a Q/DQ pair and the bias as it is."""

    precision: Precision
    quantised_input: bool
    weight: np.ndarray

    def add_to(self, graph: _Graph, x: str, name: str, **attributes: object) -> str:
        kind = _HALF.get(self.precision, TensorProto.FLOAT)
        numbers = helper.tensor_dtype_to_np_dtype(kind)
        x = graph.cast(x, f"{name}_typed", kind)
        weight = graph.constant(f"{name}_weight", self.weight.astype(numbers))
        bias = graph.constant(f"{name}_bias", np.linspace(-1, 1, len(self.weight)).astype(numbers))
        if self.precision == "int8":
            weight = graph.quantised(weight, f"{name}_weight_dq", float(np.abs(self.weight).max()) / 127)
            if self.quantised_input:
                x = graph.quantised(x, f"{name}_in", 0.05)
        return graph.add("Conv", [x, weight, bias], name, **attributes)


def _head(graph: _Graph, x: str, layout: Literal["nchw", "nhwc"], dynamic: bool, *, nhwc_image: bool) -> None:
    """Logits at the input's size, then `mask` and `confidence`."""
    axis = 1
    if layout == "nhwc":
        x, axis = graph.add("Transpose", [x], "logits_nhwc", perm=[0, 2, 3, 1]), 3
    if dynamic:
        shape = graph.add("Shape", ["image"], "image_shape")
        rows = np.array([0, 1, 2] if nhwc_image else [0, 2, 3], np.int64)
        n, h, w = (
            graph.add("Gather", [shape, graph.constant(f"at_{i}", rows[i : i + 1])], f"dim_{i}") for i in range(3)
        )
        c = graph.constant("classes", np.array([_CLASSES], np.int64))
        order = [n, c, h, w] if layout == "nchw" else [n, h, w, c]
        sizes = graph.add("Concat", order, "sizes", axis=0)
    else:
        full = [1, _CLASSES, _HEIGHT, _WIDTH] if layout == "nchw" else [1, _HEIGHT, _WIDTH, _CLASSES]
        sizes = graph.constant("sizes", np.array(full, np.int64))
    x = graph.add(
        "Resize", [x, "", "", sizes], "logits_full", mode="linear", coordinate_transformation_mode="half_pixel"
    )
    best = graph.add("ArgMax", [x], "best", axis=axis, keepdims=0)
    graph.cast(best, "mask", TensorProto.UINT8)
    share = graph.add("Softmax", [x], "shares", axis=axis)
    axes = graph.constant("class_axis", np.array([axis], np.int64))
    graph.add("ReduceMax", [share, axes], "confidence", keepdims=0)
