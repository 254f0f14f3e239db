"""The network as a list of operations, traced from its forward pass, and their translation to ONNX nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from rcil.classify.heads import FoldedCosine
from rcil.classify.network import ImageClassifier
from rcil.core.errors import ConfigError
from rcil.nn import Segmenter
from rcil.nn.architectures.deeplab import enlarge, pool
from rcil.nn.units.convnorm import ConvNorm, SameConv2d
from rcil.nn.units.norms import affine_of, is_norm
from rcil.nn.units.rc import RCConv
from rcil_export.graph.nodes import NodeList
from rcil_export.graph.shapes import Extent, InputShape

WHOLE = (nn.Conv2d, ConvNorm, RCConv, FoldedCosine)
"""Modules that are translated as one: their forward pass asks for sizes, which a trace does not have."""

SKIP_STRIDE = 4
"""Stride of the map that the head of DeepLab-v3+ takes from the backbone's first stage."""


class _Tracer(fx.Tracer):
    def __init__(self) -> None:
        super().__init__(autowrap_functions=(enlarge, pool))

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, WHOLE) or is_norm(m) or super().is_leaf_module(m, module_qualified_name)


def trace(model: Segmenter | ImageClassifier) -> fx.GraphModule:
    """The evaluation pass of `model` from image to full-size logits or scores, as named operations on named values.

    Module calls are named by the module's path, function calls by the function, in the order of execution, so that a
    network and its folded form give the same names to the same layers.
    """
    if model.training:
        raise ValueError("only the evaluation pass is exported: call eval() first")
    return fx.GraphModule(model, _Tracer().trace(model, {"maps": None}))


def value_name(node: fx.Node) -> str:
    """The name of an operation and of its result."""
    return str(node.target) if node.op == "call_module" else node.name


@dataclass(frozen=True)
class Translator:
    """Walks the trace up to low-resolution logits or a classifier's scores.

    `preprocessing` and `postprocessing` write the nodes before and after.

    Args:
        model: In evaluation mode.
        shape: Decides how a windowed pooling is written.
        image: Name of the value that the stem reads.
        stem_scale: Per-channel factors [3] that the stem's kernel takes over from the normalisation.
        nodes: The list that the nodes are added to.
    """

    model: Segmenter | ImageClassifier
    shape: InputShape
    image: str
    stem_scale: NDArray[np.float64] | None
    nodes: NodeList

    def run(self) -> str:
        """Write all nodes; returns the name of the logits [N, classes, h, w] or of the scores [N, classes, ...]."""
        names: dict[fx.Node, str] = {}
        for node in trace(self.model).graph.nodes:
            if node.op == "placeholder":
                names[node] = self.image
            elif node.target in (F.interpolate, torch.flatten):
                return names[node.all_input_nodes[0]]
            elif node.op != "output" and all(source in names for source in node.all_input_nodes):
                written = self._write(node, [names[source] for source in node.all_input_nodes])
                if written is not None:
                    names[node] = written
        raise AssertionError("the network ends neither in an interpolation nor in a list of scores")

    def _write(self, node: fx.Node, inputs: list[str]) -> str | None:
        name = value_name(node)
        if node.op == "call_module":
            return self._module(self.model.get_submodule(name), inputs[0], name)
        if node.target in (getattr, operator.getitem) or getattr(node.target, "__name__", "") == "_assert_is_none":
            return None  # the image's size, which only the final interpolation reads
        write = _FUNCTIONS.get(node.target)
        if write is None:
            raise AssertionError(f"no ONNX form for {node.target} at {name}")
        return write(self, node, inputs, name)

    def _module(self, module: nn.Module, x: str, name: str) -> str:
        match module:
            case nn.Identity():
                return x
            case nn.LeakyReLU():
                return self.leaky(x, name, module.negative_slope)
            case nn.ReLU6():
                low = self.nodes.constant("zero", np.array(0, np.float32))
                high = self.nodes.constant("six", np.array(6, np.float32))
                return self.nodes.add("Clip", [x, low, high], name)
            case nn.Conv2d():
                return self.conv(module, x, name)
            case ConvNorm():
                x = self.norm(module.norm, self.conv(module.conv, x, f"{name}.conv"), f"{name}.norm")
                return x if module.act is None else self._module(module.act, x, name)
            case RCConv():
                return self.both_branches(module, x, name)
            case FoldedCosine():
                return self.cosine(module, x, name)
            case _ if is_norm(module):
                return self.norm(module, x, name)
            case _:
                raise AssertionError(f"no ONNX form for {type(module).__name__} at {name}")

    def conv(self, conv: nn.Conv2d, x: str, name: str) -> str:
        """A conv; the kernel of the stem takes over the scale of the normalisation."""
        weight = conv.weight.detach().double()
        if x == self.image and self.stem_scale is not None:
            weight = weight * torch.from_numpy(self.stem_scale).view(1, -1, 1, 1)
        inputs = [x, self.nodes.constant(f"{name}.weight", _float32(weight))]
        if conv.bias is not None:
            inputs.append(self.nodes.constant(f"{name}.bias", _float32(conv.bias)))
        pads = {"auto_pad": "SAME_UPPER"} if isinstance(conv, SameConv2d) else {"pads": [*conv.padding] * 2}
        return self.nodes.add(
            "Conv",
            inputs,
            name,
            kernel_shape=list(conv.kernel_size),
            strides=list(conv.stride),
            dilations=list(conv.dilation),
            group=conv.groups,
            **pads,
        )

    def norm(self, norm: nn.Module, x: str, name: str) -> str:
        """A norm as scale and shift, which is what it computes in evaluation mode."""
        scale, shift = (_float32(value) for value in affine_of(norm))
        values = {"scale": scale, "shift": shift, "mean": np.zeros_like(scale), "var": np.ones_like(scale)}
        constants = [self.nodes.constant(f"{name}.{key}", value) for key, value in values.items()]
        return self.nodes.add("BatchNormalization", [x, *constants], name, epsilon=0.0)

    def both_branches(self, block: RCConv, x: str, name: str) -> str:
        """An RC block that is not folded: new + eta * (old - new), then its norm and its activation, if it has them."""
        old, new = (
            self._module(branch, x, f"{name}.{key}") for key, branch in (("old", block.old), ("new", block.new))
        )
        eta = block.mix.expected(block.anchor.weight).detach().view(1, -1, 1, 1)
        difference = self.nodes.add("Sub", [old, new], f"{name}.difference")
        share = self.nodes.add("Mul", [difference, self.nodes.constant(f"{name}.eta", _float32(eta))], f"{name}.share")
        ends = block.norm is None and block.act is None
        mixed = self.nodes.add("Add", [new, share], name if ends else f"{name}.mixed")
        if block.norm is not None:
            mixed = self.norm(block.norm, mixed, name if block.act is None else f"{name}.norm")
        return mixed if block.act is None else self._module(block.act, mixed, name)

    def cosine(self, head: FoldedCosine, x: str, name: str) -> str:
        """The cosine head: embeddings of length 1, cosines with all proxies, their softmax-weighted sum by class."""
        add, constant = self.nodes.add, self.nodes.constant
        axis = constant(f"{name}.axis", np.array([1], np.int64))
        length = add("ReduceL2", [x, axis], f"{name}.length", keepdims=1)
        shortest = constant(f"{name}.least", np.array(1e-12, np.float32))
        unit = add("Div", [x, add("Clip", [length, shortest], f"{name}.divisor")], f"{name}.unit")
        cosines = self.conv(head.conv, unit, f"{name}.conv")
        groups = constant(f"{name}.groups", np.array([0, len(head.names), head.proxies], np.int64))
        grouped = add("Reshape", [cosines, groups], f"{name}.grouped")
        weights = add("Softmax", [grouped], f"{name}.weights", axis=2)
        weighted = add("Mul", [weights, grouped], f"{name}.weighted")
        proxies = constant(f"{name}.proxies", np.array([2], np.int64))
        similarity = add("ReduceSum", [weighted, proxies], f"{name}.similarity", keepdims=1)
        return add("Mul", [similarity, constant(f"{name}.scale", _float32(head.scale))], name)

    def leaky(self, x: str, name: str, slope: float) -> str:
        """A leaky ReLU; without slope it is a ReLU."""
        return self.nodes.add("LeakyRelu", [x], name, alpha=slope) if slope else self.nodes.add("Relu", [x], name)

    def enlarge(self, x: str, like: str, name: str, channels: int) -> str:
        """Bilinear upsampling of x [N, channels, h, w] to the size of the map `like`, which has stride 4."""
        how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        return self.nodes.add("Resize", [x, "", "", self._size_of(like, name, channels)], name, **how)

    def _size_of(self, like: str, name: str, channels: int) -> str:
        """[N, channels, H, W]: a constant, or read off the map where sizes vary."""
        add, constant = self.nodes.add, self.nodes.constant
        if self.shape.static:
            batch, height, width = self.shape.usual
            sides = [batch, channels, -(-height // SKIP_STRIDE), -(-width // SKIP_STRIDE)]
            return constant(f"{name}.size", np.array(sides, np.int64))
        shape = add("Shape", [like], f"{name}.shape")
        batch_at, sides_at = (
            constant(f"{name}.{key}_at", np.array(axes, np.int64)) for key, axes in (("batch", [0]), ("sides", [2, 3]))
        )
        parts = [
            add("Gather", [shape, batch_at], f"{name}.batch"),
            constant(f"{name}.channels", np.array([channels], np.int64)),
            add("Gather", [shape, sides_at], f"{name}.sides"),
        ]
        return add("Concat", parts, f"{name}.size", axis=0)

    def pool(self, x: str, name: str, window: int | None) -> str:
        """The pooled path of the head: one mean, or means over a sliding window, replicated at the borders."""
        stride = self.model.arch.output_stride
        sides = [_reduced(extent, stride) for extent in (self.shape.height, self.shape.width)]
        if window is None or all(side.high <= window for side in sides):
            return self.nodes.add("GlobalAveragePool", [x], name)
        if any(side.low < min(window, side.high) for side in sides):
            raise ConfigError(
                f"this model pools over windows of {window} cells, which sizes of {self.shape} partly exceed",
                f"Export for one --size, or for sizes that are all above or all up to {window * stride} pixels.",
            )
        kernel = [min(window, side.high) for side in sides]
        before = [(length - 1) // 2 for length in kernel]
        after = [length - 1 - start for length, start in zip(kernel, before, strict=True)]
        means = self.nodes.add("AveragePool", [x], f"{name}.means", kernel_shape=kernel, strides=[1, 1])
        pads = self.nodes.constant(f"{name}.pads", np.array([0, 0, *before, 0, 0, *after], np.int64))
        return self.nodes.add("Pad", [means, pads], name, mode="edge")


def _reduced(extent: Extent, stride: int) -> Extent:
    """Cells of the backbone's map along one axis."""
    return Extent(low=-(-extent.low // stride), usual=-(-extent.usual // stride), high=-(-extent.high // stride))


def _float32(values: Tensor) -> NDArray[np.float32]:
    return np.asarray(values.detach().cpu().numpy(), np.float32)


def _argument(node: fx.Node, position: int, key: str) -> Any:
    """An argument of a function call, however it was passed."""
    return node.args[position] if len(node.args) > position else node.kwargs[key]


def _max_pool(translator: Translator, node: fx.Node, inputs: list[str], name: str) -> str:
    kernel, stride, padding = (
        _argument(node, at, key) for at, key in enumerate(("kernel_size", "stride", "padding"), 1)
    )
    return translator.nodes.add(
        "MaxPool", inputs, name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4
    )


def _enlarge(translator: Translator, node: fx.Node, inputs: list[str], name: str) -> str:
    return translator.enlarge(inputs[0], inputs[1], name, translator.model.arch.head_width)


_Write = Callable[[Translator, fx.Node, list[str], str], str]
_FUNCTIONS: dict[Any, _Write] = {
    operator.add: lambda t, _, inputs, name: t.nodes.add("Add", inputs, name),
    torch.cat: lambda t, _, inputs, name: t.nodes.add("Concat", inputs, name, axis=1),
    F.leaky_relu: lambda t, node, inputs, name: t.leaky(inputs[0], name, float(_argument(node, 1, "negative_slope"))),
    F.max_pool2d: _max_pool,
    pool: lambda t, node, inputs, name: t.pool(inputs[0], name, _argument(node, 1, "window")),
    enlarge: _enlarge,
}
