"""Small exported graphs for tests of fp16, bf16 and int8: several classes occur, and layers can be made hard."""

from __future__ import annotations

import numpy as np
import onnx
import torch
from networks import at_step, small_arch
from onnx import numpy_helper

from rcil.checkpoint.metadata import Metadata, class_table
from rcil.nn import fold
from rcil_export.interface import Interface
from rcil_export.onnx_file import description_of
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.precision.feeds import find_feeds
from rcil_export.shapes import InputShape

FIRST, SECOND = "backbone.stages.0.0.conv1.0", "backbone.stages.0.0.conv2"
"""Two convs of ResNet-18 of which the second alone reads the first, through a leaky ReLU."""


def small_graph(backbone: str = "resnet18", size: int = 48, seed: int = 0, **interface: object) -> onnx.ModelProto:
    """An fp32 graph of a folded network at step 1; every class wins about equally often on generated images."""
    model = at_step(small_arch(backbone), 1, seed=seed)
    folded = fold(model)[0]
    names = [list(part) for part in model.classifier.steps]
    metadata = Metadata(architecture=model.arch, classes=class_table(names), step=1)
    asked = Interface(**{"shape": InputShape.of(size, size)} | interface)
    feeds = find_feeds(None, metadata, asked.model_copy(update={"input": "float"}))
    even_out(folded, torch.from_numpy(np.concatenate([feed["image"] for feed in feeds])))
    return to_onnx(folded, metadata, asked)


@torch.no_grad()
def even_out(model: torch.nn.Module, x: torch.Tensor) -> None:
    """Give every channel behind every conv mean 0 and variance 1 over these images, as trained norms would.

    Branches of residual blocks get a quarter of that, or a random network would amplify every rounding error.
    """
    branches = {m for name, m in model.named_modules() if name.endswith("conv2")}

    def normalise(conv: torch.nn.Conv2d, _: object, y: torch.Tensor) -> torch.Tensor:
        mean, scale = y.mean((0, 2, 3)), y.std((0, 2, 3)).clamp_min(1e-3)
        scale = scale * (4 if conv in branches else 1)
        conv.weight /= scale.view(-1, 1, 1, 1)
        if conv.bias is not None:
            conv.bias.copy_((conv.bias - mean) / scale)
            return (y - mean.view(-1, 1, 1)) / scale.view(-1, 1, 1)
        return y / scale.view(-1, 1, 1)

    handles = [m.register_forward_hook(normalise) for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    model(x)
    for handle in handles:
        handle.remove()


def feeds_of(document: onnx.ModelProto, images: int = 2):
    """Generated images for a graph."""
    return find_feeds(None, *description_of(document)).first(images)


def scaled(document: onnx.ModelProto, factor: float, channels: slice = slice(None)) -> onnx.ModelProto:
    """The same function, with some channels between `FIRST` and `SECOND` so many times larger."""
    copy = onnx.ModelProto.FromString(document.SerializeToString())
    for tensor in copy.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if tensor.name in (f"{FIRST}.weight", f"{FIRST}.bias"):
            values[channels] *= factor
        elif tensor.name == f"{SECOND}.weight":
            values[:, channels] /= factor
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return copy
