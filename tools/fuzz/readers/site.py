"""Site folders: images, masks, names, domains and the record of the split."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np

from rcil.data.check import check_site, contact_sheet
from rcil.data.scan import data_digest, present_classes
from rcil.data.site import read_site
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import damaged, damaged_json
from tools.fuzz.readers.tasks import odd_yaml
from tools.fuzz.seeds import damaged_image, jpeg, mask_png, misnamed, palette_png, png

DESCRIBED = {"names": ["background", "ball", "cone"], "colours": {"ball": [200, 0, 0]}}
NUMBERED = {"names": {"0": "background", "1": "ball"}, "colours": {}}
DOMAINS = {"image_domains": {"train/a": "day", "val/b": "night"}, "seed": 1}
SPLITS = {"seed": 0, "held_out": 0.2, "train": ["a"], "val": ["b"]}


def readers() -> dict[str, Reader]:
    """The reader of this module."""
    return {"site": Reader("site", make, read)}


def read(folder: Path) -> None:
    """Read it as `rcil data check` does, then as training does."""
    report = check_site(folder)
    json.dumps(report.as_document())
    data = read_site(folder)
    for split, samples in data.splits.items():
        if report.ok and samples:
            present_classes(data, split)
            data_digest(samples)
            assert np.ndim(contact_sheet(data, samples, columns=1, cell=16)) == 3


def make(random: Random) -> Case:
    """A folder of two images with one or two files that are invalid, misnamed or missing."""
    files = _folder(random)
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(files))
        match random.randrange(12):
            case 0:
                del files[name]
            case 1:
                files = misnamed(random, files, name)
            case 2:
                files[f"{name}.{random.choice(('png', 'jpg', 'JPG'))}"] = files[name]
            case 3:
                files[name] = files[random.choice(list(files))]
            case _:
                files[name] = _wrong(random, name, files[name])
        if not files:
            break
    return files


def _folder(random: Random) -> Case:
    split_a, split_b = ("train/", "val/") if random.random() < 0.5 else ("", "")
    files = {
        f"images/{split_a}a.png": png(),
        f"images/{split_b}b.jpg": jpeg(),
        f"masks/{split_a}a.png": mask_png(),
        f"masks/{split_b}b.png": random.choice((mask_png(), palette_png())),
    }
    if random.random() < 0.5:
        files["classes.txt"] = b"background\nball\ncone\n"
    else:
        files["dataset.yaml"] = json.dumps(DESCRIBED).encode()
    if random.random() < 0.3:
        files["dataset.json"] = json.dumps(DOMAINS).encode()
    if not split_a and random.random() < 0.7:
        files["splits.json"] = json.dumps(SPLITS).encode()
    return files


def _wrong(random: Random, name: str, data: bytes) -> bytes:
    match name.rpartition("/")[2]:
        case "dataset.yaml":
            return damaged_json(random, random.choice((DESCRIBED, DESCRIBED, NUMBERED)), odd_yaml)
        case "dataset.json":
            return damaged_json(random, DOMAINS)
        case "splits.json":
            return damaged_json(random, SPLITS)
        case other if other.endswith((".png", ".jpg")):
            return damaged_image(random, data)
        case _:
            return damaged(random, data)
