"""Task files, which are YAML written by hand."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from rcil.classify.task import load_classify_task
from rcil.methods import make_method
from rcil.tasks.load import load_task
from rcil.training.run_record import record_task
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import Raw, Tree, as_json, damaged, grown_wrong, odd_value

TASK: dict[str, Any] = {
    "name": "yard",
    "seed": 1,
    "recipe": "site",
    "data": {"kind": "site", "root": "yard", "train": "train", "test": "val", "scale": 0.5},
    "protocol": {"steps": [["ball"], ["cone"]], "setting": "overlapped"},
    "network": {"backbone": "resnet18", "blocks": [1, 1, 1, 1], "width": 8, "pretrained": "imagenet.safetensors"},
    "method": {"name": "rcil", "options": {}},
    "training": {"epochs": [1, 2], "lr": [0.1, 0.01], "batch": 4, "crop": 64, "held_out": 0.2},
}
CLASSIFY: dict[str, Any] = {
    "name": "digits",
    "seed": 1,
    "data": {"kind": "folder", "root": "digits", "size": 32},
    "protocol": {"first": 5, "later_steps": 5},
    "network": {"backbone": "resnet18", "width": 4},
    "method": {"name": "eeil", "rc": True, "options": {}},
    "memory": {"per_class": 3},
    "training": {"iterations": [3, 2], "lr": [0.1, 0.05], "batch": 8},
}
LONG = 300
YAML = (
    "2001-13-45", "2001-12-14t21:59:43.10-99:00", "!!timestamp x", "!!binary %%%", "!!int x", "!!float x", "!!bool x",
    "!!set {a, b}", "!!omap [a: 1]", "!!python/object:os.system [ls]", "!x y", ".inf", "-.inf", ".nan", "0o9", "0x",
    "0b2", "1:99:99", "1_000", "~", "*a", "&a [*a]", "&a {b: *a}", "{[a]: b}", "{? {a: b}: c}", "<<", "<<: 1", "? a",
    "&a [x, x] \n", "'", '"\\x', "|\n  a", ">", "%YAML 9.9", "---", "...", "\t", "@", "`", "- a", "a: b: c", "\x85",
    "[", "}", "!!int " + "9" * 5000,
    "[&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]]",
)  # fmt: skip
"""Values that are special in YAML, or not allowed."""


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    return {
        "task": Reader("task", functools.partial(make, TASK, ("data", "protocol")), read),
        "classify-task": Reader("classify-task", functools.partial(make, CLASSIFY, ()), read_classify),
    }


def read(folder: Path) -> None:
    """Read it as `rcil train` does, up to the method and the record of the run."""
    task = _loaded(load_task, folder)
    make_method(task.method.name, **task.method.options)
    _noted(task, folder / "run")


def read_classify(folder: Path) -> None:
    """Read it as `rcil classify` does, up to the record of the run."""
    _noted(_loaded(load_classify_task, folder), folder / "run")


def _noted(task: Any, run: Path) -> None:
    """The record of a run with arbitrary mistakes."""
    if task.method.options or task.method.others:
        record_task(run, task, resume=False)
        record_task(run, task, resume=True)


def _loaded(load: Callable[[Path, list[str]], Any], folder: Path) -> Any:
    override = folder / "override"
    overrides = [override.read_bytes().decode("utf-8", "replace")] if override.exists() else []
    return load(folder / "task.yaml", overrides)


def make(document: dict[str, Any], needed: tuple[str, ...], random: Random) -> Case:
    """A task with mistakes or a wrong override; it has the sections in `needed` and two others."""
    chosen = random.sample(sorted(document), 2)
    document = {key: value for key, value in document.items() if key in {*needed, *chosen}}
    plain = yaml_of(json.dumps(document))
    match random.randrange(10):
        case 0 | 1:
            return {"task.yaml": damaged(random, plain)}
        case 2:
            section = random.choice(list(document))
            key = random.choice((f"{section}.{random.choice(('seed', 'root', 'lr', 'x', ''))}", section, "", "a.b.c.d"))
            value = as_json(odd_yaml(random)).decode("utf-8", "replace")
            return {"task.yaml": plain, "override": f"{key}{random.choice('= ')}{value}".encode()}
        case 3:
            at = random.randrange(len(plain))
            line = plain.rfind(b"\n", 0, at) + 1
            return {"task.yaml": plain[:line] + random.choice(YAML).encode() + b"\n" + plain[line:]}
        case _:
            return {"task.yaml": as_json(grown_wrong(random, document, odd_yaml))}


@functools.cache
def yaml_of(text: str) -> bytes:
    """Serialise a document as YAML."""
    return yaml.safe_dump(json.loads(text), sort_keys=False).encode()


def odd_yaml(random: Random) -> Tree:
    """A value that is odd in YAML or in any document. Long texts are rare, because PyYAML is slow for them."""
    if random.random() < 0.4:
        return Raw(random.choice(YAML))
    value = odd_value(random)
    return value if len(str(value)) < LONG or random.random() < 0.05 else str(value)[:LONG]
