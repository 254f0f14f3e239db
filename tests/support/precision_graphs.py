"""Small exported graphs for tests of fp16, bf16 and int8: several classes occur, and layers can be made hard."""

from __future__ import annotations

import cv2
import numpy as np
import onnx
import torch
from networks import at_step, small_arch
from onnx import numpy_helper

from rcil.model.metadata import Metadata, class_table
from rcil.nn import Segmenter, fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.graph.onnx_file import description_of
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.shapes import InputShape

FIRST, SECOND = "backbone.stages.0.0.conv1.0", "backbone.stages.0.0.conv2"
"""Two convs of ResNet-18 of which the second alone reads the first, through a leaky ReLU."""


def small_graph(backbone: str = "resnet18", size: int = 48, seed: int = 0, **interface: object) -> onnx.ModelProto:
    """An fp32 graph of a folded network at step 1; every class wins about equally often on generated images."""
    asked = Interface(**{"shape": InputShape.of(size, size)} | interface)
    return to_onnx(*small_network(backbone, asked, seed), asked)


def small_network(
    backbone: str = "resnet18", interface: Interface | None = None, seed: int = 0
) -> tuple[Segmenter, Metadata]:
    """The network of `small_graph`, folded, and its description."""
    asked = interface or Interface(shape=InputShape.of(48, 48))
    model = at_step(small_arch(backbone, blocks=None), 1, seed=seed)
    folded = fold(model)[0]
    names = [list(part) for part in model.classifier.steps]
    metadata = Metadata(architecture=model.arch, classes=class_table(names), step=1)
    planes = asked.model_copy(update={"input": "float"})
    even_out(folded, torch.from_numpy(np.stack([smooth_input(metadata, planes, seed) for seed in range(4)])))
    return folded, metadata


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


def smooth_input(metadata: Metadata, interface: Interface, seed: int) -> np.ndarray:
    """Smooth colour noise of three scales over the whole range of pixel values, as the graph takes it."""
    random, (_, height, width) = np.random.default_rng(seed), interface.shape.usual
    total = np.zeros((height, width, 3))
    for cells in (2, 8, 32):
        coarse = random.normal(size=(min(cells, height), min(cells, width), 3))
        total += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR) / cells**0.5
    low, high = total.min(axis=(0, 1)), total.max(axis=(0, 1))
    return image_input(metadata, interface, (255 * (total - low) / (high - low)).astype(np.uint8))


def feeds_of(document: onnx.ModelProto, batches: int = 2):
    """Smooth images for a graph."""
    metadata, interface = description_of(document)
    count = interface.shape.usual[0]
    seeds = [range(batch * count, (batch + 1) * count) for batch in range(batches)]
    return [{INPUT_NAME: np.stack([smooth_input(metadata, interface, seed) for seed in group])} for group in seeds]


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
