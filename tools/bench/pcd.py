"""Measure time and memory of Pooled Cube Distillation against its plain formulation, forward and backward, on the CPU.

The plain formulation is what research code does: square both maps, average-pool each with six windows (and along the
channels), take the norms of the differences, and leave the gradient to autograd. `rcil.losses` computes the same
numbers; the last columns say how closely, in float32 on both sides. Most of that difference is rounding of the plain
side, which pools squares before it subtracts them.

Shapes are the feature maps of a ResNet-101 DeepLab-v3 at output stride 16 with crops of 256 and 512 pixels: four
stages and the decoder.

Times are wall-clock medians with the interquartile range. Plain and fast runs alternate in one process, so that a
busy machine slows both. On a busy one prefer --threads 1: with more, every parallel section also waits for the thread
that lost its core, and this wait is as long for a short section as for a long one.

Memory is the growth of the process's peak resident set (VmHWM, reset through /proc/self/clear_refs) over what it held
with both inputs in place, in a fresh process per shape and variant; the gradient of the input counts.

Examples:
    python tools/bench/pcd.py --quick
    python tools/bench/pcd.py --threads 2 --rounds 3 --json pcd.json
    python tools/bench/pcd.py --crops 512 --no-memory
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from ratios import options_of, paired, record, write_numbers
from torch.nn import functional as F

from rcil.core.log import resident_bytes, take_peak
from rcil.losses import WINDOWS, channel_distance, spatial_distance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

SHAPES = {
    256: [(256, 64, 64), (512, 32, 32), (1024, 16, 16), (2048, 16, 16), (256, 16, 16)],
    512: [(256, 128, 128), (512, 64, 64), (1024, 32, 32), (2048, 32, 32), (256, 32, 32)],
}
FAST_PER_PLAIN = 3


def plain(new: Tensor, old: Tensor) -> Tensor:
    """Spatial plus channel distance, pooling both squared maps with every window."""
    return plain_spatial(new, old) + plain_channel(new, old)


def plain_spatial(new: Tensor, old: Tensor) -> Tensor:
    """Average pooling of both squared maps, padded by half a window."""
    new, old = new**2, old**2
    norms: list[Tensor] = []
    for k in WINDOWS:
        difference = F.avg_pool2d(new, k, 1, k // 2) - F.avg_pool2d(old, k, 1, k // 2)
        norms.append(difference.flatten(1).norm(dim=1).mean())
    return torch.stack(norms).mean()


def plain_channel(new: Tensor, old: Tensor) -> Tensor:
    """Average pooling of both squared maps along their channels."""
    difference = along_channels(new**2) - along_channels(old**2)
    norm: Tensor = difference.flatten(1).norm(dim=1).mean()
    return norm


def along_channels(x: Tensor) -> Tensor:
    """Average pool of width 3 along the channels [N, C, H, W] -> [N, HW, C]."""
    pooled: Tensor = F.avg_pool1d(x.flatten(2).transpose(1, 2), 3, 1, 1)
    return pooled


def fast(new: Tensor, old: Tensor) -> Tensor:
    """The same with `rcil.losses`."""
    return spatial_distance(new, old) + channel_distance(new, old)


VARIANTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"plain": plain, "fast": fast}


def make_maps(batch: int, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Maps of a student and a teacher: leaky activations; the student's deviate by a tenth."""
    generator = torch.Generator().manual_seed(0)
    old = F.leaky_relu(torch.randn((batch, *shape), generator=generator), 0.01)
    new = old + 0.1 * torch.randn((batch, *shape), generator=generator)
    return new.requires_grad_(), old


def run(variant: str, new: Tensor, old: Tensor) -> tuple[float, float, Tensor]:
    """Seconds, value and gradient of one forward and backward pass."""
    start = time.perf_counter()
    value = VARIANTS[variant](new, old)
    (gradient,) = torch.autograd.grad(value, new)
    return time.perf_counter() - start, value.item(), gradient


def summary(seconds: list[float]) -> dict[str, float]:
    """Median and interquartile range in milliseconds."""
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return {"median_ms": 1e3 * middle, "iqr_ms": 1e3 * (high - low), "runs": len(seconds)}


def time_shape(batch: int, shape: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Alternate both variants after one warm-up each."""
    new, old = make_maps(batch, shape)
    seconds: dict[str, list[float]] = {"plain": [], "fast": []}
    _, plain_value, plain_gradient = run("plain", new, old)
    _, fast_value, fast_gradient = run("fast", new, old)
    for _ in range(rounds):
        for variant in ("plain", *["fast"] * FAST_PER_PLAIN):
            seconds[variant].append(run(variant, new, old)[0])
    return {
        "plain": summary(seconds["plain"]),
        "fast": summary(seconds["fast"]),
        "seconds": seconds,
        "speedup": statistics.median(seconds["plain"]) / statistics.median(seconds["fast"]),
        "value_difference": abs(fast_value / plain_value - 1),
        "gradient_difference": float((fast_gradient - plain_gradient).norm() / plain_gradient.norm()),
    }


def growth_mb(action: Callable[[], object]) -> float:
    """Growth of this process's peak memory by an action."""
    take_peak()  # resets it
    before = resident_bytes("VmRSS")
    action()
    return (resident_bytes("VmHWM") - before) / 2**20


def peak_mb(job: tuple[str, int, tuple[int, int, int], int]) -> float:
    """Growth of this process's peak memory by one forward and backward pass; call it in a fresh process."""
    variant, batch, shape, threads = job
    torch.set_num_threads(threads)
    run(variant, *make_maps(1, (4, 20, 20)))  # so that thread pools and kernels are not counted
    new, old = make_maps(batch, shape)
    return growth_mb(lambda: run(variant, new, old))


def in_fresh_processes(measure: Callable[[Any], float], jobs: Sequence[Any]) -> list[float]:
    """What a function returns for each job, each in its own process."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.map(measure, jobs, chunksize=1)


def row(name: str, result: dict[str, Any]) -> str:
    cells = [f"{result[v]['median_ms']:9.1f} ± {result[v]['iqr_ms']:6.1f}" for v in ("plain", "fast")]
    memory = result.get("memory_mb")
    cells.append(f"{result['speedup']:6.1f}x")
    cells.append(f"{memory['plain']:12.0f} {memory['fast']:7.0f}" if memory else f"{'-':>12} {'-':>7}")
    cells.append(f"{result['value_difference']:.0e} / {result['gradient_difference']:.0e}")
    return f"{name:>13}  " + "  ".join(cells)


def totals(results: list[dict[str, Any]]) -> dict[str, float]:
    """Sum of the medians of both variants and their ratio."""
    plain_ms, fast_ms = (sum(result[variant]["median_ms"] for result in results) for variant in ("plain", "fast"))
    return {"plain_ms": plain_ms, "fast_ms": fast_ms, "speedup": plain_ms / fast_ms}


def crop_seconds(report: dict[str, Any], crop: int) -> tuple[list[float], list[float]]:
    """Seconds of all shapes of a crop together, round by round; a round has one plain run and some fast ones."""
    taken = [result["seconds"] for result in report["crops"][str(crop)]["shapes"].values()]
    plain_s = [sum(run) for run in zip(*(seconds["plain"] for seconds in taken), strict=True)]
    fast_s = [sum(run) for run in zip(*(seconds["fast"] for seconds in taken), strict=True)]
    return plain_s, [statistics.mean(fast_s[at : at + FAST_PER_PLAIN]) for at in range(0, len(fast_s), FAST_PER_PLAIN)]


def parse_arguments() -> argparse.Namespace:
    parser = options_of(__doc__)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    parser.add_argument("--batch", type=int, default=4, help="samples per map (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="plain runs per shape, each with 3 fast ones (default 3)")
    parser.add_argument("--crops", type=int, nargs="+", choices=sorted(SHAPES), default=sorted(SHAPES))
    parser.add_argument("--quick", action="store_true", help="crop 256 only, one round")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory measurement")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.crops, arguments.rounds = [256], 1
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    report: dict[str, Any] = {
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": arguments.threads,
        "batch": arguments.batch,
        "crops": {},
    }
    print(f"torch {torch.__version__}, {arguments.threads} threads, batch {arguments.batch}, float32")
    print(
        f"{'C x H x W':>13}  {'plain ms ± IQR':>18}  {'fast ms ± IQR':>18}  {'ratio':>7}"
        f"  {'peak MB: plain, fast':>20}  difference: value / gradient"
    )
    for crop in arguments.crops:
        results = {}
        for shape in SHAPES[crop]:
            name = "x".join(map(str, shape))
            results[name] = time_shape(arguments.batch, shape, arguments.rounds)
            if not arguments.no_memory:
                jobs = [(variant, arguments.batch, shape, arguments.threads) for variant in VARIANTS]
                results[name]["memory_mb"] = dict(zip(VARIANTS, in_fresh_processes(peak_mb, jobs), strict=True))
            print(row(name, results[name]), flush=True)
        total = totals(list(results.values()))
        print(f"crop {crop}: plain {total['plain_ms']:.0f} ms, fast {total['fast_ms']:.0f} ms, {total['speedup']:.1f}x")
        report["crops"][str(crop)] = {"shapes": results, "total": total}
    record("pcd", {f"plain / fast, crop {crop}": paired(*crop_seconds(report, crop)) for crop in arguments.crops})
    write_numbers(arguments.json, report)


if __name__ == "__main__":
    main()
