"""Files that runs write and read again: request and report of `add-class`, memory of `classify`, names."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from rcil.classify.memory import read_memory
from rcil.classify.task import ClassifyTask
from rcil.data.class_names import read_names
from rcil.site.request import RECORD, Request, check_folder
from rcil.site.run import read_report
from rcil.training.run_record import TASK_RECORD, record_task
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import damaged, damaged_json
from tools.fuzz.readers.tasks import odd_yaml

REPORT: dict[str, Any] = {"accepted": True, "classes": {"ball": {"iou": 0.5}}, "reason": None, "images": [1, 2]}
MEMORY: dict[str, Any] = {"zero": [1, 5, 7], "one": [2, 3, 4]}
ASKED: dict[str, Any] = {"model": "m.safetensors", "data": "yard", "classes": ["ball"], "max_drop": 5.0, "seed": 0}
NOTED: dict[str, Any] = {"name": "task", "seed": 0, "memory": {"per_class": 20}, "training": {"batch": 64}}
NAMES = b"background\nball\ncone\n"


def readers() -> dict[str, Reader]:
    """The reader of this module."""
    return {"records": Reader("records", make, read)}


def read(folder: Path) -> None:
    """Read the record that the case contains."""
    (path,) = folder.iterdir()
    match path.name:
        case "report.json":
            read_report(path)
        case "step0.memory.json":
            read_memory(path, images=10)
        case "names.txt":
            read_names(str(path))
        case "task.yaml":
            record_task(folder, ClassifyTask(), resume=True)
        case _:
            model = folder.parent / "m.safetensors"
            model.touch()
            check_folder(folder, Request(**{**ASKED, "model": model}), resume=True)


def make(random: Random) -> Case:
    """One of the records with mistakes."""
    match random.randrange(5):
        case 0:
            return {"report.json": damaged_json(random, REPORT)}
        case 1:
            return {"step0.memory.json": damaged_json(random, MEMORY)}
        case 2:
            return {"names.txt": damaged(random, NAMES)}
        case 3:
            return {TASK_RECORD: damaged_json(random, NOTED, odd_yaml)}
        case _:
            return {RECORD: damaged_json(random, ASKED, odd_yaml)}
