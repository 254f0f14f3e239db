"""Exports of annotation tools."""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np

from rcil.data.converters import convert
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import damaged, damaged_json
from tools.fuzz.seeds import damaged_image, jpeg, mask, mask_png, png

COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 6}, {"id": "x", "file_name": "sub/b.jpg"}],
    "categories": [{"id": 7, "name": "ball"}, {"id": 90, "name": "cone"}, {"id": 3, "name": "void"}],
    "annotations": [
        {"image_id": 1, "category_id": 7, "segmentation": [[0, 0, 4.9, 0, 4.9, 3.2, 0, 3.2], [1, 1, 2, 1, 2, 2]]},
        {"image_id": 1, "category_id": 90, "segmentation": {"size": [6, 8], "counts": [6, 2, 3, 1, 36]}},
        {"image_id": 1, "category_id": 90, "iscrowd": 1, "segmentation": {"size": [6, 8], "counts": "623OQ1"}},
        {"image_id": "x", "category_id": 3, "segmentation": []},
    ],
}
SHAPES: list[dict[str, Any]] = [
    {"label": "ball", "points": [[0, 0], [4.5, 0], [4, 3]], "shape_type": "polygon"},
    {"label": "cone", "points": [[1, 1], [3, 3]], "shape_type": "rectangle"},
    {"label": "cone", "points": [[4, 3], [5, 3]], "shape_type": "circle"},
    {"label": "ball", "points": [[1, 1], [2, 2]], "shape_type": "line"},
    {
        "label": "background",
        "points": [[0, 0], [8, 6]],
        "shape_type": "mask",
        "mask": base64.b64encode(mask_png()).decode(),
    },
]
LABELME: dict[str, Any] = {"imagePath": "a.png", "imageHeight": 6, "imageWidth": 8, "shapes": SHAPES}
DATA_YAML = (
    b"path: .\nnames: [ball, 'a, b', \"c\"]  # three\nnc: 3\n",
    b"names:\n  0: ball\n  1: 'it''s'\n  2: cone # x\ntrain: images/train\n",
    b"names:\n- ball\n- cone\n- pole\n",
    b"names: {0: ball, 1: cone, 2: pole}\n",
)
LABEL_MAP = b"# label:color_rgb:parts:actions\nbackground:0,0,0::\nball:200,0,0::\ncone:0,200,0::\n"
COLOURS = ((0, 0, 0), (0, 0, 200), (0, 200, 0))


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    makers = {"coco": make_coco, "cvat": make_cvat, "labelme": make_labelme, "yolo": make_yolo}
    return {name: Reader(name, maker, functools.partial(read, name)) for name, maker in makers.items()}


def read(kind: str, folder: Path) -> None:
    """Read it as `rcil data convert` does."""
    single = folder / "one.json"
    convert(kind, single if single.exists() else folder / "export", folder / "site")


def make_coco(random: Random) -> Case:
    """COCO: a folder with two images and their instances, or a single file."""
    text = damaged_json(random, COCO) if random.random() < 0.9 else json.dumps(COCO).encode()
    if random.random() < 0.1:
        return {"one.json": text, "images/a.png": png(), "images/sub/b.jpg": jpeg()}
    files = {"export/images/a.png": png(), "export/images/sub/b.jpg": jpeg()}
    name = random.choice(list(files))
    if random.random() < 0.15:
        files[name] = damaged_image(random, files[name])
    return {**files, "export/annotations/instances_train.json": text}


def make_cvat(random: Random) -> Case:
    """CVAT: VOC folders with a label map."""
    files = {
        "export/labelmap.txt": LABEL_MAP,
        "export/ImageSets/Segmentation/train.txt": b"a\nsub/b\n",
        "export/JPEGImages/a.png": png(),
        "export/JPEGImages/sub/b.jpg": jpeg(),
        "export/SegmentationClass/a.png": _coloured(),
        "export/SegmentationClass/sub/b.png": _coloured(),
    }
    return spoilt(random, files)


def make_labelme(random: Random) -> Case:
    """LabelMe: a JSON file next to its image, and sometimes a list of labels."""
    files = {"export/a.json": damaged_json(random, LABELME), "export/a.png": png()}
    if random.random() < 0.3:
        files["export/labels.txt"] = b"__ignore__\n_background_\nball\ncone\nbackground\n"
    if random.random() < 0.2:
        shapes = [{**SHAPES[-1], "mask": base64.b64encode(damaged_image(random, mask_png())).decode()}]
        files["export/a.json"] = json.dumps({**LABELME, "shapes": shapes}).encode()
    return spoilt(random, files) if random.random() < 0.2 else files


def make_yolo(random: Random) -> Case:
    """YOLO: images, labels and names."""
    files = {
        "export/images/train/a.png": png(),
        "export/images/val/b.jpg": jpeg(),
        "export/labels/train/a.txt": b"0 0.1 0.1 0.9 0.1 0.5 0.9\n2 0.2 0.2 0.4 0.2 0.4 0.4 0.2 0.4\n",
        "export/labels/val/b.txt": b"1 0 0 1 0 1 1\n",
    }
    if random.random() < 0.8:
        files[random.choice(("export/data.yaml", "export/data.yml"))] = random.choice(DATA_YAML)
    else:
        files["export/classes.txt"] = b"ball\ncone\npole\n"
    return spoilt(random, files)


def spoilt(random: Random, files: Case) -> Case:
    """Damage, move or delete one or two of the files."""
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(files))
        match random.randrange(12):
            case 0 if len(files) > 1:
                del files[name]
            case 1:
                files[random.choice((f"{name}x", name.upper(), f"{name}/x", f"export/{name}"))] = files.pop(name)
            case 2:
                files[name] = random.choice(list(files.values()))
            case _:
                image = name.endswith((".png", ".jpg"))
                files[name] = damaged_image(random, files[name]) if image else damaged(random, files[name])
    return files


@functools.cache
def _coloured() -> bytes:
    return cv2.imencode(".png", np.array(COLOURS, np.uint8)[mask()])[1].tobytes()
