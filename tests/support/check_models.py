"""A tiny network after two continual steps in the forms that the checker compares."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path

import onnx
import torch
from networks import at_step, small_arch
from torch import nn

from rcil.checkpoint.file import save
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil.nn import Segmenter, fold
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape

SIZE = (64, 80)
INTERFACE = Interface(shape=InputShape.of(*SIZE))


@lru_cache
def model(backbone: str = "resnet18", step: int = 2) -> Segmenter:
    """Shared: copy it before changing it. Every class has a row of its own, as after training."""
    network = at_step(small_arch(backbone), step)
    rows = torch.randn(len(network.names), network.arch.head_width, 1, 1, generator=torch.Generator().manual_seed(0))
    network.classifier.set_rows(rows, torch.linspace(-0.1, 0.1, len(rows)))
    return network


def metadata(network: Segmenter, **changes: object) -> Metadata:
    """Describes a network of `model`; classes of folded ones are named by hand."""
    names = [name for name in network.names if not name.startswith("new")]
    steps = [names, *([name] for name in network.names if name.startswith("new"))]
    described = Metadata(architecture=network.arch, classes=class_table(steps), step=len(steps) - 1)
    return described.model_copy(update=changes)


def checkpoint(network: Segmenter, name: str = "checkpoint") -> CheckpointArtefact:
    """A network as an open checkpoint."""
    return CheckpointArtefact(name, network, metadata(network))


def folded(backbone: str = "resnet18") -> Segmenter:
    """A fresh folded form."""
    return fold(model(backbone))[0]


def document(network: Segmenter, interface: Interface = INTERFACE) -> onnx.ModelProto:
    """A network as ONNX."""
    return to_onnx(network, metadata(network), interface)


def graph(network: Segmenter, interface: Interface = INTERFACE, name: str = "graph") -> OnnxArtefact:
    """A network as an open ONNX file."""
    return OnnxArtefact(name, document(network, interface), metadata(network), interface)


def save_model(path: Path, network: Segmenter, parent_sha256: str | None = None) -> Path:
    """A network as a checkpoint file."""
    entry = LineageEntry(step=len(network.classifier.steps) - 1, source="train", parent_sha256=parent_sha256)
    save(path, network, metadata(network, lineage=(entry,)))
    return path


def scaled_branch(backbone: str, layer: str) -> Segmenter:
    """A fold that went wrong: the new branch of one block counts a thousandth too much."""
    wrong = copy.deepcopy(model(backbone))
    wrong.get_submodule(layer).new.conv.weight.data *= 1.001
    return fold(wrong)[0]


def dropped_dilation(layer: str, *, keep_padding: bool = False) -> Segmenter:
    """A fold that went wrong: one conv lost its dilation (and, to keep the size, the padding that goes with it)."""
    wrong = folded()
    conv = wrong.get_submodule(layer)[0]
    assert isinstance(conv, nn.Conv2d) and conv.dilation != (1, 1)
    conv.dilation = (1, 1)
    if not keep_padding:
        conv.padding = (1, 1)
    return wrong


def norm_left_in(layer: str) -> Segmenter:
    """A fold that went wrong: a norm was absorbed by its conv and is applied once more."""
    wrong = folded()
    unit = wrong.get_submodule(layer)
    norm = copy.deepcopy(model().get_submodule(layer).new.norm)
    parent, key = layer.rpartition(".")[::2]
    setattr(wrong.get_submodule(parent), key, nn.Sequential(unit[0], norm, unit[1]).eval())
    return wrong
