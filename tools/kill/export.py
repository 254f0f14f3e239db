"""Kills `rcil-export`: afterwards the folder holds the complete old or new model, or none."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from rcil.core.files import sha256_of
from tools.kill.models import write_checkpoint
from tools.kill.programs import Words, choose, measure, run
from tools.kill.tally import Tally, left_in
from tools.kill.whole import problems_in

TO_THE_END = 5
"""Number of kills after which one run is allowed to finish."""


def kill_export(folder: Path, tally: Tally, rng: random.Random) -> None:
    """Kill exports into one folder, which is empty or holds an older export."""
    old, new = (write_checkpoint(folder / f"{name}.safetensors", seed) for seed, name in enumerate(("old", "new")))
    before, reference, output, log = (folder / name for name in ("before", "reference", "deployed", "log"))
    measure(_words(old, before), log, lambda: False)
    pace = measure(_words(new, reference), log, lambda: any(reference.glob(".rcil-export.*")))
    known = {sha256_of(path / "model.onnx") for path in (before, reference)}
    tally.seconds_undisturbed = pace.total
    while tally.left:
        shutil.rmtree(output, ignore_errors=True)
        if tally.finished % 2:
            shutil.copytree(before, output)
        for left in range(min(TO_THE_END, tally.left), -1, -1):
            had = (output / "model.onnx").exists()
            parts = set(output.glob(".rcil-export.*"))
            moment = choose(pace, rng) if left else None
            ending = run(_words(new, output), log, moment, lambda: bool(set(output.glob(".rcil-export.*")) - parts))  # noqa: B023
            if ending.killed:
                tally.killed(after_output=ending.after_output)
                tally.left_after_kills += left_in(output)
            tally.note("the next run", [ending.problem] if ending.problem else [])
            tally.note("after it", export_problems(output, known, had=had or not ending.killed))
        tally.left_in_the_end += left_in(output)
        tally.finished += 1
        if sha256_of(output / "model.onnx") != sha256_of(reference / "model.onnx"):
            tally.note("in the end", ["the model is not that of an undisturbed run"])


def export_problems(output: Path, known: set[str], *, had: bool) -> list[str]:
    """Return what is wrong with a folder of exports.

    Args:
        output: The folder.
        known: SHA-256 of the models that may be there.
        had: Whether there was a model before, which must not be lost.
    """
    found = problems_in(output)
    model, report = output / "model.onnx", output / "report.json"
    if not model.exists():
        return [*found, "the model is gone"] if had else found
    digest = sha256_of(model)
    if digest not in known:
        found.append("the model is neither the old one nor the new one")
    if report.exists() and digest[:12] not in json.loads(report.read_text())["facts"]["model.onnx"]:
        found.append("the report belongs to another model")
    return found


def _words(model: Path, output: Path) -> Words:
    return ["rcil_export", "export", model, "-o", output, "--size", "32x48", "--rounds", "0", "--target", "onnx"]
