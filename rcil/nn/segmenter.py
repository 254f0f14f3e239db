"""The segmentation network: backbone, DeepLab head, growing classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import torch.nn.functional as F
from torch import Tensor, nn

from rcil.model.architecture import Architecture
from rcil.nn.architectures.deeplab import DeepLabHead, DeepLabPlusHead
from rcil.nn.architectures.efficientnet_lite import EfficientNetLite
from rcil.nn.architectures.resnet import ResNet
from rcil.nn.classifier import IncrementalClassifier

MapKind = Literal["before", "after"]


@dataclass(frozen=True)
class Maps:
    """The maps that distillation reads; h, w are the resolution at the output stride, or at stride 4 after
    `deeplabv3plus`.
    """

    stages: tuple[Tensor, ...]
    """Last map of each of the four stages [N, C_i, H_i, W_i], before or after the activation, as requested."""
    encoder: Tensor
    """The fourth stage after its activation [N, C, H_4, W_4], at the output stride."""
    decoder: Tensor
    """Input of the classifier, before or after its activation, as requested [N, D, h, w]."""
    logits_small: Tensor
    """Logits at low resolution [N, classes, h, w]."""
    logits: Tensor
    """Logits at input size [N, classes, H, W]."""

    def distilled(self) -> list[Tensor]:
        """The six maps of the official recipe: four stages, decoder, low-resolution logits."""
        return [*self.stages, self.decoder, self.logits_small]


class Segmenter(nn.Module):
    """DeepLab-v3 or v3+ on any of the backbones; use `build` to make one."""

    def __init__(self, arch: Architecture, steps: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.arch = arch
        self.backbone = EfficientNetLite(arch) if arch.lite else ResNet(arch)
        head = DeepLabPlusHead if arch.head == "deeplabv3plus" else DeepLabHead
        self.head = head(arch, self.backbone.stage_channels)
        self.classifier = IncrementalClassifier(arch.head_width, steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return self.classifier.names

    @overload
    def forward(self, x: Tensor, maps: None = None) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, maps: MapKind) -> Maps: ...

    def forward(self, x: Tensor, maps: MapKind | None = None) -> Tensor | Maps:
        """Segment normalised images.

        Args:
            x: [N, 3, H, W].
            maps: None returns the logits [N, classes, H, W]. `before` (the paper) or `after` (the official code)
                returns `Maps` with the stage and decoder maps before or after their last activation.
        """
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
            logits_small=small,
            logits=logits,
        )
