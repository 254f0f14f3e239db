"""What to do after the verdict: the next command for an accepted model, remedies for the others. No torch here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rcil.evaluation.bootstrap import scenes
from rcil.site.verdict import Verdict

KEEPS_OLD = ("strict", "dft")
"""Methods with `keeps_old`, duplicated here so that advice does not import torch."""
STRIDE = 16
"""Exported heights and widths are multiples of this."""


@dataclass(frozen=True)
class Step:
    """One thing to do."""

    text: str
    command: str = ""
    """A command to type; empty if there is none."""


@dataclass(frozen=True)
class Run:
    """What the advice depends on."""

    model: Path
    """The old model."""
    data: Path
    classes: tuple[str, ...]
    output: Path
    method: str
    size: tuple[int, int]
    """Height and width that the network sees."""
    evaluated_on: str
    images: int
    groups: int
    labelled: Mapping[str, int]
    """Number of training images of every new class."""
    options: tuple[str, ...] = ()
    """Options of the command that another attempt needs too."""


def next_steps(verdict: Verdict, run: Run) -> list[dict[str, Any]]:
    """What to do next, most important first, JSON-ready."""
    states = {"accepted": _deploy, "uncertain": _look_closer, "rejected": _improve}
    return [asdict(step) for step in states[verdict.outcome](verdict, run)]


def _deploy(verdict: Verdict, run: Run) -> Iterator[Step]:
    yield Step("Export the model and compare it with the one that it replaces:", _export(run))


def _look_closer(verdict: Verdict, run: Run) -> Iterator[Step]:
    where = "the split val" if run.evaluated_on == "val" else "a split val, which the site folder does not have yet"
    yield Step(
        f"Label more images for {where}: other places, times of day or weather, not more frames of the same video. The "
        f"{run.images} images show {scenes(run.groups)}."
    )
    yield Step(
        "Then delete report.json and repeat the command with --resume: the model is judged again, not trained again.",
        _line("rm", run.output / "report.json"),
    )
    yield Step("Or look at the pictures above, decide yourself, and export the model:", _export(run))


def _improve(verdict: Verdict, run: Run) -> Iterator[Step]:
    broken = {role: [f.name for f in verdict.findings if (f.role, f.state) == (role, "broken")] for role in _ROLES}
    if names := broken["old"]:
        yield Step(
            f"To forget less of {', '.join(names)}: add training images that also show {_it(names)}, or use a lower "
            "--lr or a smaller --minutes. If nothing of the old classes may change, train only the classifier row of "
            "the new class:",
            _add_class(run, "strict", "--strict"),
        )
    if names := broken["new"]:
        counts = ", ".join(f"{name}: {run.labelled.get(name, 0)}" for name in names)
        yield Step(
            f"To learn {', '.join(names)} better: label more images that show {_it(names)} (training images now: "
            f"{counts}), train longer with a larger --minutes, and use a larger --scale if the objects are small. "
            "Objects that the masks leave out are learned as background; look for them on the contact sheet:",
            _line("rcil", "data", "check", run.data),
        )
        if run.method in KEEPS_OLD:
            yield Step(
                f"{run.method} can use existing features only. Let the network learn new ones:", _add_class(run, "free")
            )
    if broken["background"]:
        yield Step(
            "Background became worse where the new class is marked wrongly: add training images without it that look "
            "similar, complete the masks, or raise --max-background-drop if the pictures look right."
        )


_ROLES = ("old", "background", "new")


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _export(run: Run) -> str:
    height, width = (-(-side // STRIDE) * STRIDE for side in run.size)
    model, deployed = run.output / "model.safetensors", run.output / "deployed"
    return _line(
        *("rcil-export", model, "-o", deployed, "--size", f"{height}x{width}"),
        *("--images", run.data, "--previous", run.model),
    )


def _add_class(run: Run, suffix: str, *more: str) -> str:
    classes = [word for name in run.classes for word in ("--class", name)]
    output = run.output.with_name(f"{run.output.name}-{suffix}")
    return _line(
        "rcil", "add-class", "--from", run.model, "--data", run.data, *classes, "-o", output, *run.options, *more
    )


def _line(*words: str | Path) -> str:
    return shlex.join(map(str, words))
