"""Measure one optimisation step: RCIL here, RCIL in the formulation of research code, and plain fine-tuning.

All three train a DeepLab-v3 ResNet on the same images: forward, losses, backward, SGD.

- here: two-branch student, folded teacher, `rcil-official` losses.
- research: the same student and losses, but the teacher keeps its two branches and PCD pools both squared maps with six
  padded windows.
- plain: one branch, cross entropy, no teacher.

Runs alternate in one process; times are medians with the interquartile range.
Memory is the growth of the peak resident set in a process of its own.

Examples:
    python tools/bench/train_step.py
    python tools/bench/train_step.py --backbone resnet18 --crop 128 --batch 4 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pcd as pcd_bench
import torch
from torch import Tensor

from rcil.losses import PCD_FACTORS, unbiased_cross_entropy, unbiased_distillation
from rcil.methods import LossTerms, StepInfo, make_method
from rcil.model.architecture import Architecture
from rcil.nn import Maps, Segmenter, begin_step, build, fold

OLD, NEW = 16, 1
NAMES = [f"class {index}" for index in range(OLD)]


def research_terms(new: Maps, old: Maps, labels: Tensor) -> LossTerms:
    """The official objective with PCD written out with average pooling."""
    factors, schedule = PCD_FACTORS["voc"], ((OLD + NEW) / NEW) ** 0.5
    spatial, channel = [], []
    for index, (a, b) in enumerate(zip(new.distilled(), old.distilled(), strict=True)):
        if a.shape[1] != b.shape[1]:
            a = torch.cat([a[:, :1] + a[:, OLD:].sum(1, keepdim=True), a[:, 1:OLD]], dim=1)
        spatial.append(factors.spatial[index == 5] * pcd_bench.plain_spatial(a, b))
        if index < 5:
            channel.append(factors.channel[index == 4] * pcd_bench.plain_channel(a, b))
    return LossTerms(
        unce=unbiased_cross_entropy(new.logits, labels, OLD),
        unkd=100 * unbiased_distillation(new.logits, old.logits),
        pcd_spatial=schedule * torch.stack(spatial).sum() / 6,
        pcd_channel=schedule * torch.stack(channel).sum() / 5,
    )


def make_steps(arguments: argparse.Namespace) -> dict[str, Callable[[], float]]:
    """One closure per variant that does a whole optimisation step and returns the loss."""
    torch.manual_seed(0)
    arch = Architecture().replace(backbone=arguments.backbone)
    teacher = build(arch, [NAMES]).eval()
    student = begin_step(teacher, ["new"]).train()
    plain = build(arch.replace(rc=None), [[*NAMES, "new"]]).train()
    images = torch.randn(arguments.batch, 3, arguments.crop, arguments.crop)
    labels = torch.randint(0, 2, (arguments.batch, arguments.crop, arguments.crop)) * OLD
    official, info = make_method("rcil-official"), StepInfo(OLD, NEW)
    folded = fold(teacher)[0]
    optimisers = {
        id(m): torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 1e-9, momentum=0.9)
        for m in (student, plain)
    }

    def finish(model: Segmenter, loss: Tensor) -> float:
        optimisers[id(model)].zero_grad()
        loss.backward()
        optimisers[id(model)].step()
        return loss.item()

    def maps_of(model: Segmenter) -> Maps:
        with torch.no_grad():
            return model(images, maps="after")

    def here() -> float:
        torch.manual_seed(1)
        return finish(student, official.terms(student(images, maps="after"), maps_of(folded), labels, info).total)

    def research() -> float:
        torch.manual_seed(1)
        return finish(student, research_terms(student(images, maps="after"), maps_of(teacher), labels).total)

    def fine_tuning() -> float:
        return finish(plain, torch.nn.functional.cross_entropy(plain(images), labels))

    return {"here": here, "research": research, "plain": fine_tuning}


def peak_mb(job: tuple[str, argparse.Namespace]) -> float:
    """Growth of this process's peak memory by two steps of one variant; call it in a fresh process."""
    variant, arguments = job
    torch.set_num_threads(arguments.threads)
    step = make_steps(arguments)[variant]
    Path("/proc/self/clear_refs").write_text("5")
    before = pcd_bench.status_mb("VmRSS")
    for _ in range(2):
        step()
    return pcd_bench.status_mb("VmHWM") - before


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--crop", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all variants after one warm-up (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    steps = make_steps(arguments)
    losses = {name: step() for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    report: dict[str, Any] = {
        "settings": {k: str(v) for k, v in vars(arguments).items()},
        "variants": {name: pcd_bench.summary(values) for name, values in seconds.items()},
        "loss_difference": abs(losses["here"] / losses["research"] - 1),
    }
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    report["research_over_here"] = medians["research"] / medians["here"]
    report["here_over_plain"] = medians["here"] / medians["plain"]
    if not arguments.no_memory:
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            jobs = [(name, arguments) for name in steps]
            report["peak_mb"] = dict(zip(steps, pool.map(peak_mb, jobs, chunksize=1), strict=True))
    for name, result in report["variants"].items():
        memory = f", peak {report['peak_mb'][name]:.0f} MB" if "peak_mb" in report else ""
        print(f"{name:>9}: {result['median_ms']:8.0f} ± {result['iqr_ms']:.0f} ms{memory}")
    print(f"research / here {report['research_over_here']:.2f}x, here / plain {report['here_over_plain']:.2f}x")
    print(f"relative difference of the two RCIL losses {report['loss_difference']:.1e}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
