"""The network as a list of operations, read off its own forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from rcil.classify.heads import FoldedCosine
from rcil.classify.network import ImageClassifier
from rcil.nn import Segmenter
from rcil.nn.architectures.deeplab import enlarge, pool
from rcil.nn.units.convnorm import ConvNorm
from rcil.nn.units.norms import is_norm
from rcil.nn.units.rc import RCConv

WHOLE = (nn.Conv2d, ConvNorm, RCConv, FoldedCosine)
"""Units that are translated as one; their forward pass asks for sizes, which a trace does not have."""


class _Tracer(fx.Tracer):
    def __init__(self) -> None:
        super().__init__(autowrap_functions=(enlarge, pool))

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, WHOLE) or is_norm(m) or super().is_leaf_module(m, module_qualified_name)


def trace(model: Segmenter | ImageClassifier) -> fx.GraphModule:
    """The evaluation pass of `model` from image to full-size logits or scores, as named operations on named values.

    Module calls are named by the module's path, function calls by the function, in the order of execution, so that a
    network and its folded form give the same names to the same places.
    """
    if model.training:
        raise ValueError("only the evaluation pass is exported: call eval() first")
    return fx.GraphModule(model, _Tracer().trace(model, {"maps": None}))


def value_name(node: fx.Node) -> str:
    """The name of an operation and of what it gives."""
    return str(node.target) if node.op == "call_module" else node.name


@torch.no_grad()
def intermediates(model: Segmenter, x: Tensor) -> dict[str, Tensor]:
    """Every value of the evaluation pass, by the name it has in the ONNX graph.

    Args:
        model: Any form of the network.
        x: Normalised images [N, 3, H, W].
    """
    values: dict[str, Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, Tensor) and n.op in ("call_module", "call_function", "call_method"):
                values[value_name(n)] = result.clone()
            return result

    Recorder(trace(model)).run(x, None)
    return values
