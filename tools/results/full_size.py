"""The tables of full-size images. Each belongs to a task file in docs/results, which states everything but the methods.

Steps, network and schedule stand in the task file, so that `rcil train` and `rcil compare` run the same cells. Options
of methods stand there too; they were chosen on held-out images (the tables `*-settings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rcil.tasks.task import Task, TrainingSection
from tools.results.cells import Changes, Table

TASKS = Path(__file__).resolve().parents[2] / "docs" / "results"
NAMES = {
    "fine-tuning": "fine-tuning",
    "LwF": "lwf",
    "ILT": "ilt",
    "MiB": "mib",
    "SDR": "sdr",
    "PLOP": "plop",
    "RCIL": "rcil",
    "RCIL+": "rcil-plus",
    "joint": "joint",
}
REPEATED = ("MiB", "RCIL", "RCIL+")
SMALLER = ("MiB", "RCIL", "RCIL+", "joint")
DATA = {"voc": "voc-animals", "camvid": "camvid-whole"}


def read_task(name: str) -> dict[str, Any]:
    """The task file of a table, with the recipe that site data has by default."""
    document: dict[str, Any] = yaml.safe_load((TASKS / f"{name}.yaml").read_text(encoding="utf-8"))
    return {"recipe": "site", **document}


def rows_of(document: Mapping[str, Any], titles: Sequence[str]) -> dict[str, Changes]:
    """A row per method, with its options and rates. Joint training has as many iterations as all steps together."""
    section, steps = document["method"], document["protocol"]["steps"]
    options = {**section.get("others", {}), section["name"]: section.get("options", {})}
    first, later = document["training"]["epochs"]
    rows: dict[str, Changes] = {}
    for title in titles:
        name = NAMES[title]
        rows[title] = {
            "method": {"name": name, "options": options.get(name, {}), "lr": _own(section.get("lr", {}), name)}
        }
    if "joint" in rows:
        rows["joint"] = {**rows["joint"], "training.epochs": [first + later * (len(steps) - 1), 1]}
    return rows


def _own(rates: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: rates[name]} if name in rates else {}


def table_of(name: str, titles: Sequence[str], about: str, seeds: int = 1, **fields: Any) -> Table:
    """The table of a task file; `fields` are further ones of `Table`."""
    document = read_task(name)
    return Table(
        name=name,
        title=document["name"],
        about=f"{about} {seen(Task.model_validate(document).training)}",
        data=DATA[name.split("-")[0]],
        base=_without_method(document),
        rows=rows_of(document, titles),
        replicas={f"seed {seed}": {"seed": seed} for seed in range(seeds)},
        **{"folder": "", "detailed": True, "repeated": REPEATED, **fields},
    )


def seen(training: TrainingSection) -> str:
    """How much every step sees, in words."""
    images, (first, later) = training.epoch_images or 0, training.epochs
    pixels = images * training.crop**2 / 1e6
    return (
        f"Step 0 has {first * images // training.batch} iterations of {training.batch} crops of {training.crop} pixels "
        f"from full-size images ({first * pixels:.0f} million pixels), every later step "
        f"{later * images // training.batch} ({later * pixels:.0f} million), and joint training as many as all steps "
        "together."
    )


def settings() -> Iterator[Table]:
    """Choose rates and weights of the methods on the held-out images of the first two later steps."""
    document = read_task("voc-animals-4-1")
    section = document["method"]
    first = document["training"]["lr"][0]
    rows: dict[str, Changes] = {}
    for title, name, options, rate in (
        ("MiB, weight 10", "mib", {"weight": 10}, None),
        ("MiB, weight 100", "mib", {"weight": 100}, None),
        ("MiB, weight 10, rate 0.001", "mib", {"weight": 10}, 0.001),
        ("RCIL, lambda 1, gamma 0.001", "rcil", {"late": True, "distillation": 1, "gamma": 0.001}, None),
        ("RCIL, lambda 4, gamma 0.003", "rcil", {"late": True, "distillation": 4, "gamma": 0.003}, None),
        ("RCIL, lambda 10, gamma 0.01", "rcil", {"late": True, "distillation": 10, "gamma": 0.01}, None),
        ("RCIL, lambda 1, gamma 0.001, rate 0.001", "rcil", {"late": True, "distillation": 1, "gamma": 0.001}, 0.001),
        ("RCIL+", "rcil-plus", section["others"]["rcil-plus"], section["lr"]["rcil-plus"][1]),
    ):
        changed = {"training.lr": [first, rate]} if rate else {}
        rows[title] = {"method": {"name": name, "options": options}, **changed}
    yield _choice(
        name="voc-animals-settings",
        title="VOC animals: rates and weights",
        about="Settings of the methods were chosen by the last column, on the first two later steps of 4-1.",
        rows=rows,
        steps=3,
    )


def branches() -> Iterator[Table]:
    """What the second branch is worth: RCIL without one of its parts, or with another form of the branch."""
    document = read_task("voc-animals-4-1")
    rcil = document["method"]["options"]
    fixed = {**rcil, "mix": "fixed"}
    variants = {
        "RCIL": rcil,
        "one branch": {**rcil, "parallel": False},
        "no drop-path": fixed,
        "no norm in the branch": {**rcil, "norms": "none"},
        "neither norm nor drop-path": {**fixed, "norms": "none"},
        "old branch not frozen": {**rcil, "freeze": False},
        "branches not merged": {**rcil, "merge": False},
        "one norm after the sum": {**rcil, "norms": "after"},
        "learnable eta": {**rcil, "mix": "learnable"},
        "only in stage 4 and head": {**rcil, "stages": ["stage4", "head"]},
        "from step 0 on": {**rcil, "late": False},
    }
    yield _choice(
        name="voc-animals-branches",
        title="VOC animals, 4-1: what the second branch is worth",
        about="RCIL with one change each. Without norm and drop-path, a branch is a conv with another learning rate. "
        + seen(Task.model_validate(document).training),
        rows={title: {"method": {"name": "rcil", "options": options}} for title, options in variants.items()},
    )


def additions() -> Iterator[Table]:
    """RCIL+ with and without single additions, on the first two later steps."""
    document = read_task("voc-animals-4-1")
    section = document["method"]
    plus, rates = section["others"]["rcil-plus"], section["lr"]["rcil-plus"]
    variants = {
        "RCIL+": plus,
        "without drawn features": {**plus, "replay": False},
        "without branches": {**plus, "parallel": False},
        "fused by one share": {**plus, "fuse": True},
        "fused by layer (RegMean)": {**plus, "fuse": "regmean"},
        "ridge rows": {**plus, "refit": "ridge"},
        "weighed by reliability": {**plus, "reliable": 0.0},
        "unreliable background ignored": {**plus, "reliable": 0.5},
    }
    rows: dict[str, Changes] = {
        title: {"method": {"name": "rcil-plus", "options": options}, "training.lr": rates}
        for title, options in variants.items()
    }
    rows["DFT*: frozen network, new rows only"] = {"method": {"name": "dft", "options": {}}, "training.lr": rates}
    yield _choice(
        name="voc-animals-additions",
        title="VOC animals: additions to RCIL+",
        about="RCIL+ with one change each, chosen by the last column, on the first two later steps of 4-1.",
        rows=rows,
        steps=3,
    )


def _choice(*, name: str, title: str, about: str, rows: Mapping[str, Changes], steps: int | None = None) -> Table:
    """A table of 4-1, or of its first steps, to choose from on held-out images."""
    document = read_task("voc-animals-4-1")
    protocol = {**document["protocol"], "steps": document["protocol"]["steps"][:steps]}
    return Table(
        name=name,
        title=title,
        about=about,
        data="voc-animals",
        base={**_without_method(document), "protocol": protocol},
        rows=rows,
        replicas={"seed 0": {"seed": 0}},
        look="ablation",
        held_out=True,
        folder="",
    )


def _without_method(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in ("name", "method")}


def full_size() -> Iterator[Table]:
    """All tables of full-size images."""
    yield from settings()
    main = "The methods of the paper, RCIL+ and joint training."
    yield table_of("voc-animals-4-1", tuple(NAMES), main, 3)
    yield table_of("camvid-6-1", tuple(NAMES), main, 3)
    for name in ("voc-animals-4-1-disjoint", "voc-animals-4-4", "camvid-6-5"):
        yield table_of(name, SMALLER, "The most important methods.")
    yield from branches()
    yield from additions()
