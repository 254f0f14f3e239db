"""The segmentation network: backbone, DeepLab head, growing classifier."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import overload

import torch.nn.functional as F
from torch import Tensor, nn

from rcil.model.architecture import RC, Architecture
from rcil.nn.architectures.deeplab import DeepLabHead, DeepLabPlusHead
from rcil.nn.architectures.efficientnet_lite import EfficientNetLite
from rcil.nn.architectures.resnet import ResNet
from rcil.nn.classifier import IncrementalClassifier
from rcil.nn.network import ROWS, MapKind, Maps, Network, Part, RowStart


class Segmenter(Network):
    """DeepLab-v3 or v3+ on any of the backbones; use `build` to make one."""

    arch: Architecture

    def __init__(self, arch: Architecture, steps: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.arch = arch
        self.backbone = EfficientNetLite(arch) if arch.lite else ResNet(arch)
        head = DeepLabPlusHead if arch.head == "deeplabv3plus" else DeepLabHead
        self.head = head(arch, self.backbone.stage_channels)
        self.classifier = IncrementalClassifier(arch.head_width, steps)

    @property
    def rows(self) -> IncrementalClassifier:
        """The classifier."""
        return self.classifier

    @overload
    def forward(self, x: Tensor, maps: None = None) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, maps: MapKind) -> Maps: ...

    def forward(self, x: Tensor, maps: MapKind | None = None) -> Tensor | Maps:
        """See `Network.forward`."""
        stages = self.backbone(x)
        before = self.head(stages.after)
        decoder = F.leaky_relu(before, self.arch.slope)
        small = self.classifier(decoder)
        logits = F.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)
        if maps is None:
            return logits
        return Maps(
            stages=stages.before if maps == "before" else stages.after,
            encoder=stages.after[-1],
            decoder=before if maps == "before" else decoder,
            inputs=(decoder,),
            logits_small=small,
            logits=logits,
        )

    def grow(self, new: Sequence[str], start: RowStart) -> None:
        """See `Network.grow`."""
        self.classifier = self.classifier.extended(new, start)

    def branched(self, rc: RC) -> Segmenter:
        """See `Network.branched`."""
        from rcil.nn.build import build

        branched = build(self.arch.replace(rc=rc), self.classifier.steps).to(next(self.parameters()))
        single = self.state_dict()
        fresh = branched.state_dict()  # a learned mix has no counterpart and keeps its initial value
        branched.load_state_dict({key: single.get(single_branch(key), value) for key, value in fresh.items()})
        return branched.train(self.training)

    def with_norms(self) -> Segmenter:
        """See `Network.with_norms`."""
        from rcil.nn.build import build

        plain = build(self.arch.replace(folded=False), self.classifier.steps).to(next(self.parameters()))
        plain.classifier = copy.deepcopy(self.classifier)
        return plain

    def early(self, count: int) -> list[nn.Module]:
        """See `Network.early`."""
        return [self.backbone.stem, *list(self.backbone.stages.children())[:count]] if count else []

    def part_of(self, parameter: str) -> Part:
        """See `Network.part_of`."""
        parts: dict[str, Part] = {"backbone": "backbone", "head": "head", "classifier": "classifier"}
        return parts[parameter.partition(".")[0]]

    def tensors(self) -> dict[str, Tensor]:
        """See `Network.tensors`."""
        body = {key: value for key, value in self.state_dict().items() if not key.startswith("classifier.")}
        return {**body, **dict(zip(ROWS, self.classifier.rows(), strict=True))}

    def load_tensors(self, tensors: Mapping[str, Tensor], order: Sequence[int]) -> None:
        """See `Network.load_tensors`."""
        self.load_state_dict({key: value for key, value in tensors.items() if key not in ROWS}, strict=False)
        self.classifier.set_rows(*(tensors[key][list(order)] for key in ROWS))


def single_branch(key: str) -> str:
    """The state-dict key of a conv or norm in the network without RC; branches without norms are bare convs."""
    bare = re.sub(r"\.(old|new)\.(weight|bias)$", r".conv.\2", key)
    return bare.replace(".old.", ".").replace(".new.", ".")
