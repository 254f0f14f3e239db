"""Honest exports of tiny networks in every form, made once per process."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
import torch
from networks import at_step, randomise, small_arch

from mutants.kinds import Form
from rcil.checkpoint.file import load_for_inference, save
from rcil.classify.checkpoint import load_classifier, save_classifier
from rcil.classify.network import HeadSpec, build_classifier, fold_classifier, next_step
from rcil.model.architecture import Architecture
from rcil.model.metadata import LITE_MEAN, LITE_STD, ClassifierMetadata, Metadata, class_table
from rcil_export.checks.limits import limits_for
from rcil_export.convert import convert, deployed_metadata
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import ClassifierInterface, Interface
from rcil_export.graph.shapes import Extent, InputShape

FIXED = InputShape.of(48, 64)
OPEN = InputShape(
    batch=Extent(low=1, usual=2, high=4),
    height=Extent(low=33, usual=48, high=96),
    width=Extent(low=33, usual=64, high=96),
)
INTERFACES: dict[str, Interface] = {
    "fp32": Interface(shape=FIXED, outputs=("mask", "confidence")),
    "dynamic": Interface(shape=OPEN, outputs=("mask", "confidence"), runtime="tensorrt"),
    "fp16": Interface(shape=FIXED, precision="fp16"),
    "int8": Interface(shape=FIXED, precision="int8", runtime="cpu"),
    "qdq": Interface(shape=FIXED, precision="int8", runtime="tensorrt"),
    "lite": Interface(shape=FIXED),
}
WIDE = limits_for("fp32", "int8", {"agreement": 0.5, "agreement_old_new": 0, "confidence": 1})
"""Random networks lose more by rounding than trained ones."""
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Folders that live as long as the process."""


@dataclass(frozen=True)
class Honest:
    """A checkpoint and its graph."""

    checkpoint: Path
    document: onnx.ModelProto


@cache
def honest(form: Form) -> Honest:
    """The export of a form."""
    if form == "classifier":
        return _classifier()
    path = checkpoint_of("efficientnet_lite0" if form == "lite" else "resnet18")
    model, metadata = load_for_inference(path)
    deployed = deployed_metadata(metadata, path)
    return Honest(path, convert(model, deployed, INTERFACES[form], limits=WIDE, vnni="no").document)


@cache
def checkpoint_of(backbone: str) -> Path:
    """A network after one continual step; every class has a row of its own, as after training."""
    changes = {} if backbone == "efficientnet_lite0" else {"blocks": (1, 1, 1, 1)}
    model = at_step(small_arch(backbone, **changes), 1)
    rows = torch.randn(len(model.names), model.arch.head_width, 1, 1, generator=torch.Generator().manual_seed(0))
    model.classifier.set_rows(rows, torch.linspace(-0.1, 0.1, len(rows)))
    look = {"mean": LITE_MEAN, "std": LITE_STD} if backbone == "efficientnet_lite0" else {}
    classes = class_table([list(names) for names in model.classifier.steps])
    path = folder() / "step1.safetensors"
    save(path, model, Metadata(architecture=model.arch, classes=classes, step=1, **look))
    return path


def folder() -> Path:
    """A new folder that is gone when the process ends."""
    _KEPT.append(tempfile.TemporaryDirectory(prefix="rcil-mutants-"))
    return Path(_KEPT[-1].name)


def _classifier() -> Honest:
    torch.manual_seed(0)
    names = [["a", "b"], ["c"]]
    model = build_classifier(Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=4), HeadSpec("linear"), names)
    randomise(model)
    model = next_step(model).eval()
    metadata = ClassifierMetadata(
        architecture=model.arch, classes=class_table(names), step=1, head="linear", proxies=1, size=32
    )
    path = folder() / "classifier.safetensors"
    save_classifier(path, model, metadata)
    loaded, stored = load_classifier(path)
    deployed = deployed_metadata(stored, path)
    assert isinstance(deployed, ClassifierMetadata)
    interface = ClassifierInterface(shape=InputShape.of(32, 32))
    return Honest(path, to_onnx(fold_classifier(loaded)[0], deployed, interface))
