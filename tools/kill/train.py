"""Kills and resumes `rcil train`: finished steps must stay, and the result must equal an undisturbed run bit by bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from rcil.scenes import make_site
from rcil.training.state import read_state
from tools.kill.programs import Condition, Moment, Words, choose, measure, run
from tools.kill.tally import Tally, left_in
from tools.kill.whole import hashes, problems_in

TASK = {
    "name": "kill",
    "recipe": "paper",
    "data": {"root": "site"},
    "protocol": {"steps": [["building"], ["vegetation"], ["road"]]},
    "network": {"backbone": "resnet18", "blocks": [1, 1, 1, 1], "width": 4, "head_width": 8},
    "training": {
        "epochs": [2, 2],
        "lr": [0.05, 0.02],
        "batch": 4,
        "crop": 48,
        "workers": 0,
        "epoch_images": 24,
        "save_every": 3,
        "device": "cpu",
    },
}
SAME = (
    "task.yaml",
    "*.safetensors",
    "results.json",
    "step*/best.safetensors",
    "step*/state.pt",
    "step*/method.pt",
    "step*/log.csv",
)


def kill_training(folder: Path, tally: Tally, rng: random.Random) -> None:
    """Kill trainings. Every run is resumed until it ends, then compared with an undisturbed one."""
    make_site(folder / "site", images=20, size=(64, 96), frames=0)
    task, reference, log = folder / "task.yaml", folder / "reference", folder / "log"
    task.write_text(yaml.safe_dump(TASK), encoding="utf-8")
    pace = measure(["rcil", "train", task, "-o", reference, "--json"], log, _begins(reference))
    tally.seconds_undisturbed = pace.total
    while tally.left:
        output = folder / f"run{tally.finished}"
        _kill_run(task, output, tally, lambda: choose(pace, rng) if tally.left else None, log)
        tally.note("in the end", differences(reference, output))
        tally.left_in_the_end += left_in(output)
        tally.finished += 1


def _kill_run(task: Path, output: Path, tally: Tally, moment: Callable[[], Moment | None], log: Path) -> None:
    """Complete one run despite any number of kills."""
    words: Words = ["rcil", "train", task, "-o", output, "--json"]
    finished: dict[str, str] = {}
    while (ending := run(words, log, moment(), _begins(output))).killed:
        words = [*words[:6], "--resume"]
        tally.killed(after_output=ending.after_output)
        tally.left_after_kills += left_in(output)
        before, finished = finished, hashes(output, "step*.safetensors")
        changed = [f"{name} was finished and then changed" for name in before if finished.get(name) != before[name]]
        tally.note("after it", problems_in(output) + changed)
    tally.note("the next run", [ending.problem] if ending.problem else [])


def _begins(output: Path) -> Condition:
    """Return a condition: whether a process started after this call is training, seen by its TensorBoard file."""
    before = len(list(output.rglob("*tfevents*")))
    return lambda: len(list(output.rglob("*tfevents*"))) > before


def differences(reference: Path, output: Path) -> list[str]:
    """List files whose bytes differ from an undisturbed run; of a state, the content is compared.

    A state that was loaded and saved again has the same values, but pickle stores fewer of them as shared objects.
    """
    found = []
    for pattern in SAME:
        for path in sorted(reference.glob(pattern)):
            name = path.relative_to(reference)
            if not (output / name).exists():
                found.append(f"{name} is missing")
            elif path.suffix == ".pt" and same(read_state(path), read_state(output / name)):
                continue
            elif path.read_bytes() != (output / name).read_bytes():
                found.append(f"{name} differs from the undisturbed run's")
    return found


def same(first: Any, second: Any) -> bool:
    """Whether two documents of tensors are equal bit by bit."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)
