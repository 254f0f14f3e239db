"""Parameters and multiply-accumulates of a deployed network, calculated from its description alone.

No network is built and no graph is read, because numbers counted there are compared with these. The tables of the
published networks are therefore written here a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rcil.model.architecture import Architecture
from rcil.model.metadata import ClassifierMetadata, Metadata

Size = tuple[int, int]
ASPP_3X3 = 3
SKIP_STAGE_ROW = 1
LITE_STEM = 32
LITE_ROWS = ((3, 1, 1), (3, 2, 6), (5, 2, 6), (3, 2, 6), (5, 1, 6), (5, 2, 6), (3, 1, 6))
"""Kernel, stride, expansion of the rows of an EfficientNet-lite."""
LITE_BLOCKS = {
    "efficientnet_lite0": (1, 2, 2, 3, 3, 4, 1),
    "efficientnet_lite1": (1, 3, 3, 4, 4, 5, 1),
    "efficientnet_lite2": (1, 3, 3, 4, 4, 5, 1),
}
LITE_CHANNELS = {
    "efficientnet_lite0": (16, 24, 40, 80, 112, 192, 320),
    "efficientnet_lite1": (16, 24, 40, 80, 112, 192, 320),
    "efficientnet_lite2": (16, 24, 48, 88, 120, 208, 352),
}


@dataclass(frozen=True)
class Counts:
    """The cost of one image."""

    parameters: int
    macs: int
    size: Size
    """Image height and width."""


@dataclass(frozen=True)
class _Conv:
    """A conv with a square kernel, and the size of its output."""

    inputs: int
    outputs: int
    kernel: int
    size: Size
    groups: int = 1
    bias: bool = True

    @property
    def weights(self) -> int:
        return self.outputs * self.inputs // self.groups * self.kernel**2

    @property
    def parameters(self) -> int:
        return self.weights + self.outputs * self.bias

    @property
    def macs(self) -> int:
        return self.weights * self.size[0] * self.size[1]


def deployed_counts(metadata: Metadata, size: Size) -> Counts:
    """Parameters and multiply-accumulates of the deployed form of a segmenter or classifier of whole images.

    Args:
        metadata: Of a checkpoint in any form; only its architecture and number of classes matter.
        size: Image height and width.
    """
    arch, classes = metadata.architecture, len(metadata.classes)
    assert isinstance(arch, Architecture), "there is no closed form for networks of other libraries"
    backbone, channels, reduced = _backbone(arch, size)
    if isinstance(metadata, ClassifierMetadata):
        cosine = metadata.head == "cosine"
        rows = classes * metadata.proxies if cosine else classes
        head = [_Conv(channels, rows, 1, (1, 1), bias=not cosine)]
    else:
        head = [*_deeplab(arch, channels, reduced)]
        if arch.head == "deeplabv3plus":
            reduced = _halved(_halved(size))
            head += _refinement(arch, reduced)
        head.append(_Conv(arch.head_width, classes, 1, reduced))
    convs = [*backbone, *head]
    return Counts(sum(conv.parameters for conv in convs), sum(conv.macs for conv in convs), size)


def _backbone(arch: Architecture, size: Size) -> tuple[list[_Conv], int, Size]:
    """All convs of a backbone, and the channels and size of its last map."""
    convs = list(_lite(arch, size) if arch.lite else _resnet(arch, size))
    last = convs[-1]
    return convs, last.outputs, last.size


def _resnet(arch: Architecture, size: Size) -> Iterator[_Conv]:
    """Stem and four stages; the projection of a shortcut comes before the convs of its block."""
    size = _halved(size)
    yield _Conv(3, arch.width, 7, size)
    size, inputs = _halved(size), arch.width  # the max pooling
    halvings = {32: (1, 2, 3), 16: (1, 2), 8: (1,)}[arch.output_stride]
    expansion = 4 if arch.bottleneck else 1
    for stage, blocks in enumerate(arch.stage_blocks):
        width = arch.width * 2**stage
        outputs = width * expansion
        for block in range(blocks):
            before, strided = size, block == 0 and stage in halvings
            size = _halved(size) if strided else size
            if strided or inputs != outputs:
                yield _Conv(inputs, outputs, 1, size)
            if arch.bottleneck:
                yield _Conv(inputs, width, 1, before)
                yield _Conv(width, width, 3, size)
                yield _Conv(width, outputs, 1, size)
            else:
                yield _Conv(inputs, width, 3, size)
                yield _Conv(width, width, 3, size)
            inputs = outputs


def _lite(arch: Architecture, size: Size) -> Iterator[_Conv]:
    """Inverted residual blocks; a stride beyond the output stride is a dilation, which costs nothing."""
    size, inputs, reached = _halved(size), LITE_STEM, 2
    yield _Conv(3, LITE_STEM, 3, size)
    repeats, channels = LITE_BLOCKS[arch.backbone], LITE_CHANNELS[arch.backbone]
    for (kernel, stride, expansion), blocks, outputs in zip(LITE_ROWS, repeats, channels, strict=True):
        halves = stride == 2 and reached < arch.output_stride
        reached *= 2 if halves else 1
        for block in range(blocks):
            hidden = inputs * expansion
            if expansion > 1:
                yield _Conv(inputs, hidden, 1, size)
            size = _halved(size) if halves and block == 0 else size
            yield _Conv(hidden, hidden, kernel, size, groups=hidden)
            yield _Conv(hidden, outputs, 1, size)
            inputs = outputs


def _deeplab(arch: Architecture, inputs: int, size: Size) -> Iterator[_Conv]:
    """Four parallel convs, the pooled path, and the projections of both, whose sum has one bias."""
    width, window = arch.head_width, arch.pool_window
    pooled = (1, 1) if window is None or (window >= size[0] and window >= size[1]) else size
    yield _Conv(inputs, width, 1, size)
    for _ in range(ASPP_3X3):
        yield _Conv(inputs, width, 3, size)
    yield _Conv(inputs, width, 1, pooled)
    yield _Conv(width * (1 + ASPP_3X3), width, 1, size)
    yield _Conv(width, width, 1, pooled, bias=False)


def _refinement(arch: Architecture, size: Size) -> Iterator[_Conv]:
    """DeepLab-v3+ at stride 4: the skip, then a depthwise and a pointwise conv, twice."""
    expansion = 4 if arch.bottleneck else 1
    skipped = LITE_CHANNELS[arch.backbone][SKIP_STAGE_ROW] if arch.lite else arch.width * expansion
    yield _Conv(skipped, arch.skip_width, 1, size)
    joined = arch.head_width + arch.skip_width
    for channels in (joined, arch.head_width):
        yield _Conv(channels, channels, 3, size, groups=channels)
        yield _Conv(channels, arch.head_width, 1, size)


def _halved(size: Size) -> Size:
    """The size after a stride of 2; padding rounds odd sides up."""
    return (size[0] + 1) // 2, (size[1] + 1) // 2
