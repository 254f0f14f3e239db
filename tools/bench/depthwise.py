"""Measure what the backward pass of depthwise convs saves in a training step of EfficientNet-lite0 on a CPU.

The same network with `DepthwiseConv2d` and with torch's own conv in its place; rounds alternate, medians with the
interquartile range.

Examples:
    python tools/bench/depthwise.py
    python tools/bench/depthwise.py --crop 128 --batch 6 --threads 1
"""

from __future__ import annotations

import statistics
import time

import torch
from pcd import summary
from ratios import options_of, paired, record, write_numbers
from torch import Tensor, nn

from rcil.model.architecture import Architecture
from rcil.nn import Segmenter, build
from rcil.nn.architectures.depthwise import DepthwiseConv2d


def with_plain_convs(model: Segmenter) -> Segmenter:
    """Replace every `DepthwiseConv2d` by the plain conv that it derives from."""
    for module in model.modules():
        if isinstance(module, DepthwiseConv2d):
            module.forward = nn.Conv2d.forward.__get__(module)  # type: ignore[method-assign]
    return model


def one_step(model: Segmenter, images: Tensor) -> float:
    """Seconds of one forward and backward pass."""
    start = time.perf_counter()
    model.zero_grad()
    model(images).square().mean().backward()
    return time.perf_counter() - start


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    arch = Architecture(backbone="efficientnet_lite0", head_width=64)
    models = {
        "here": build(arch, [["background", "a"]]),
        "torch's conv": with_plain_convs(build(arch, [["background", "a"]])),
    }
    images = torch.randn(arguments.batch, 3, arguments.crop, arguments.crop)
    images = images.contiguous(memory_format=torch.channels_last)
    for model in models.values():
        one_step(model.to(memory_format=torch.channels_last).train(), images)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(arguments.rounds):
        for name, model in models.items():
            times[name].append(one_step(model, images))
    for name, taken in times.items():
        spread = summary(taken)
        print(f"{name}: {spread['median_ms']:.0f} ms (interquartile range {spread['iqr_ms']:.0f})")
    mine, plain = times.values()
    ratio = statistics.median(b / a for a, b in zip(mine, plain, strict=True))
    print(f"a training step is {ratio:.2f} times faster (median of {arguments.rounds} pairs)")
    record("depthwise", {"torch / here": paired(plain, mine)})
    write_numbers(arguments.json, {**times, "ratio": ratio})


if __name__ == "__main__":
    main()
