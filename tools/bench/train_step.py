"""Measure one optimisation step: RCIL here, RCIL in the formulation of research code, and plain fine-tuning; or compare
an earlier version of the code with this one.

Without `--against`, all three train a DeepLab-v3 ResNet on the same images: forward, losses, backward, SGD.

- here: two-branch student, folded teacher, `rcil-official` losses.
- research: the same student and losses, but the teacher keeps its two branches and PCD pools both squared maps with six
  padded windows.
- plain: one branch, cross entropy, no teacher.

Runs alternate in one process; times are medians with the interquartile range.
Memory is the growth of the peak resident set in a process of its own.

With `--against REVISION`, the code of that commit and this code train EfficientNet-lite0 in processes of their own,
which take turns: joint training (`joint`), RCIL's first step (`first`) and a later step of RCIL+ (`later`). The table
shows seconds and processor seconds per step, both ratios to the earlier code in the same round, and the share of the
machine's arithmetic limit: the operations of all convs of a step, those with padding included, over those that a
product of large matrices (sgemm) does in the same processor time. Both versions must compute the same loss. On a busy
machine seconds say little; processor seconds remain.

Examples:
    python tools/bench/train_step.py
    python tools/bench/train_step.py --against HEAD~10 --threads 1
    python tools/bench/train_step.py --against HEAD~10 --busy 2 --rounds 5 --json busy.json
    python tools/bench/train_step.py --backbone resnet18 --crop 128 --batch 4 --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pcd as pcd_bench
import torch
from ratios import Ratio, options_of, paired, record, write_numbers
from torch import Tensor
from workers import Worker, competitors, shown, spread

from rcil.losses import PCD_FACTORS, unbiased_cross_entropy, unbiased_distillation
from rcil.methods import LossTerms, StepInfo, make_method
from rcil.model.architecture import Architecture
from rcil.nn import Maps, Segmenter, begin_step, build, fold

STEPS = ("joint", "first", "later")
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
    return pcd_bench.growth_mb(lambda: [step() for _ in range(2)])


def compare_versions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time steps of an earlier version of the code, in both layouts, and of this one in channels-last."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        earlier, here = Path(folder), Path(__file__).parents[2]
        archive = subprocess.run(
            ["git", "archive", arguments.against, "rcil", "export/rcil_export"],
            cwd=here,
            capture_output=True,
            check=True,
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        options = [f"--{name}={getattr(arguments, name)}" for name in ("backbone", "crop", "batch", "threads")]
        last = "--layout=channels-last"
        variants = {
            "earlier, contiguous": (earlier, ["--layout=contiguous"]),
            "earlier, channels-last": (earlier, [last]),
            "here, channels-last": (here, [last]),
        }
        if arguments.compile:
            variants["here, compiled"] = (here, [last, "--compile"])
        workers = {
            name: Worker([*options, *own], {}, (root, root / "export")) for name, (root, own) in variants.items()
        }
        for worker in workers.values():
            stack.callback(worker.close)
        return {kind: _time_versions(workers, kind, arguments) for kind in arguments.steps}


def _time_versions(workers: dict[str, Worker], kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    losses = {name: worker.ask(step=kind, count=2) for name, worker in workers.items()}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    limits: list[dict[str, float]] = []
    with competitors(arguments.busy):
        for _ in range(arguments.rounds):
            limits.append(next(iter(workers.values())).ask(step="sgemm"))
            for name, worker in workers.items():
                runs[name].append(worker.ask(step=kind, count=1))
    reference = next(iter(runs.values()))
    limit = {name: statistics.median(found[name] for found in limits) for name in limits[0]}
    first, gflop = (next(iter(losses.values()))[name] for name in ("losses", "gflop"))
    return {
        name: {
            "seconds": spread([run["seconds"] for run in found]),
            "cpu": spread([run["cpu"] for run in found]),
            "speedup": paired([run["seconds"] for run in reference], [run["seconds"] for run in found])._asdict(),
            "cpu_saving": paired([run["cpu"] for run in reference], [run["cpu"] for run in found])._asdict(),
            "images_per_second": arguments.batch / statistics.median(run["seconds"] for run in found),
            "gflop": gflop,
            "sgemm": limit,
            "share_of_limit": gflop / statistics.median(run["cpu"] for run in found) / limit["per_cpu"],
            "loss_difference": max(abs(a / b - 1) for a, b in zip(losses[name]["losses"], first, strict=True)),
        }
        for name, found in runs.items()
    }


def print_versions(report: dict[str, Any]) -> None:
    columns = (
        "step",
        "code",
        "s",
        "processor s",
        "times as fast",
        "in processor time",
        "of the limit",
        "loss differs by",
    )
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, variants in report.items():
        for name, found in variants.items():
            limit = found["sgemm"]
            ratios = f"{found['speedup']['value']:.2f} | {found['cpu_saving']['value']:.2f}"
            times = f"{shown(found['seconds'])} | {shown(found['cpu'])}"
            rest = f"{found['share_of_limit']:.0%} | {found['loss_difference']:.0e}"
            print(f"| {kind} | {name} | {times} | {ratios} | {rest} |")
    print(f"sgemm: {limit['gflops']:.0f} GFLOP per second, {limit['per_cpu']:.0f} per processor second")


def parse_arguments() -> argparse.Namespace:
    parser = options_of(__doc__)
    parser.add_argument("--against", metavar="REVISION", help="compare with the code of this commit")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="what to train, with --against")
    parser.add_argument("--compile", action="store_true", help="also try torch.compile, with --against")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="start N competing processes, with --against")
    parser.add_argument("--backbone", help="default resnet50, with --against efficientnet_lite0")
    parser.add_argument("--crop", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all variants after one warm-up (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory measurement")
    arguments = parser.parse_args()
    arguments.backbone = arguments.backbone or ("efficientnet_lite0" if arguments.against else "resnet50")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.against:
        found = compare_versions(arguments)
        print_versions(found)
        record(
            f"train step against {arguments.against}",
            {
                f"{step}, {name}, {measure}": Ratio(**ratios[measure])
                for step, versions in found.items()
                for name, ratios in [*versions.items()][1:]
                for measure in ("speedup", "cpu_saving")
            },
        )
        settings = {k: str(v) for k, v in vars(arguments).items()}
        write_numbers(arguments.json, {"settings": settings, "steps": found})
        return
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
        peaks = pcd_bench.in_fresh_processes(peak_mb, [(name, arguments) for name in steps])
        report["peak_mb"] = dict(zip(steps, peaks, strict=True))
    for name, result in report["variants"].items():
        memory = f", peak {report['peak_mb'][name]:.0f} MB" if "peak_mb" in report else ""
        print(f"{name:>9}: {result['median_ms']:8.0f} ± {result['iqr_ms']:.0f} ms{memory}")
    print(f"research / here {report['research_over_here']:.2f}x, here / plain {report['here_over_plain']:.2f}x")
    print(f"relative difference of the two RCIL losses {report['loss_difference']:.1e}")
    here = seconds["here"]
    record("train step", {f"{name} / here": paired(seconds[name], here) for name in ("research", "plain")})
    write_numbers(arguments.json, report)


if __name__ == "__main__":
    main()
