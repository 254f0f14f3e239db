"""A folder of six classes, each a colour, that a tiny network tells apart within a few iterations."""

import shutil

import numpy as np
import pytest
import yaml

from rcil.classify.run import run_classify
from rcil.classify.task import load_classify_task
from rcil.core.images import write_image

COLOURS = {
    "blue": (20, 30, 230),
    "green": (20, 220, 30),
    "grey": (128, 128, 128),
    "red": (230, 30, 20),
    "white": (250, 250, 250),
    "yellow": (240, 230, 20),
}


def write_colours(root):
    random = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        for name, colour in COLOURS.items():
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                noise = random.normal(0, 12, (18, 20, 3))
                write_image(root / split / name / f"{index}.png", np.clip(noise + colour, 0, 255).astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    write_colours(tmp_path / "colours")
    return tmp_path / "colours"


def write_task(path):
    document = {
        "name": "colours",
        "data": {"kind": "folder", "root": "colours", "size": 16},
        "protocol": {"first": 2, "later_steps": 2},
        "network": {"width": 2, "blocks": [1, 1, 1, 1]},
        "method": {"name": "eeil", "others": {"podnet": {"proxies": 2}}},
        "memory": {"per_class": 2},
        "training": {"iterations": [4, 2], "tune_iterations": 1, "batch": 6, "shift": 1},
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def task_file(folder):
    return write_task(folder.parent / "task.yaml")


@pytest.fixture(scope="package")
def finished(tmp_path_factory):
    """Folders of two whole runs, with their tasks; tests only read them."""
    base = tmp_path_factory.mktemp("finished")
    write_colours(base / "colours")
    path = write_task(base / "task.yaml")
    plain = ["method.rc=false", "method.options.proxies=2"]
    runs = {}
    for name, overrides in (("eeil", ["method.rc=true"]), ("podnet", plain)):
        task = load_classify_task(path, [f"method.name={name}", *overrides])
        runs[name] = task, base / name, run_classify(task, base / name)
    return runs


@pytest.fixture
def copied(finished, tmp_path):
    """The EEIL run once more, to be changed."""
    task, output, _ = finished["eeil"]
    shutil.copytree(output, tmp_path / "copy")
    return task, tmp_path / "copy"
