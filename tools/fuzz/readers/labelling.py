"""Exports of further labelling tools, and archives of them."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

from rcil.data.brush import encode_brush
from rcil.data.converters import convert
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import damaged, damaged_json
from tools.fuzz.readers.converters import LABELME, spoilt
from tools.fuzz.seeds import jpeg, mask, mask_png, png

SIZE = {"original_width": 8, "original_height": 6, "image_rotation": 0}
BRUSH = {"format": "rle", "rle": encode_brush(mask() == 1), "brushlabels": ["ball"]}
POLYGON = {"points": [[0, 0], [60, 0], [50, 70.5]], "closed": True, "polygonlabels": ["cone"]}
RECTANGLE = {"x": 10, "y": 10.5, "width": 30, "height": 20, "rotation": 30, "rectanglelabels": ["ball"]}
RESULTS: list[dict[str, Any]] = [
    {"type": kind, "value": value, **SIZE}
    for kind, value in (("brushlabels", BRUSH), ("polygonlabels", POLYGON), ("rectanglelabels", RECTANGLE))
]
LABEL_STUDIO: list[dict[str, Any]] = [
    {"data": {"image": "/data/local-files/?d=images/a.png"}, "annotations": [{"result": RESULTS}], "predictions": [1]},
    {"data": {"image": "/data/upload/1/0a1b2c3d-b.jpg", "split": "val"}, "annotations": [{"result": RESULTS[1:]}]},
]
CONFIG = b'<View><BrushLabels><Label value="ball" background="#ff0000"/><Label value="cone"/></BrushLabels></View>'
REGIONS: list[dict[str, Any]] = [
    {"shape_attributes": shape, "region_attributes": {"class": name}}
    for name, shape in (
        ("ball", {"name": "polygon", "all_points_x": [0, 4, 4.5], "all_points_y": [0, 0, 3]}),
        ("cone", {"name": "rect", "x": 1, "y": 1, "width": 3, "height": 2}),
        ("ball", {"name": "ellipse", "cx": 4, "cy": 3, "rx": 2, "ry": 1, "theta": 0.5}),
        ("cone", {"name": "point", "cx": 4, "cy": 3}),
    )
]
VIA: dict[str, Any] = {"a.png1": {"filename": "a.png", "size": 1, "regions": REGIONS, "file_attributes": {}}}
PROJECT: dict[str, Any] = {
    "_via_img_metadata": VIA,
    "_via_attributes": {"region": {"class": {"type": "dropdown", "options": {"cone": "", "ball": ""}}}},
}
VIA_CSV = (
    b"filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes\n"
    b'a.png,1,"{}",1,0,"{""name"":""rect"",""x"":1,""y"":1,""width"":3,""height"":2}","{""class"":""ball""}"\n'
)
XML = (
    b'<?xml version="1.0" encoding="utf-8"?><annotations><meta><task><labels><label><name>ball</name>'
    b"<color>#ff0000</color></label><label><name>cone</name></label></labels></task></meta>"
    b'<image id="0" name="a.png" width="8" height="6"><mask label="ball" rle="1, 2, 0, 1" left="2" top="1" width="2" '
    b'height="2" z_order="0"/><polygon label="cone" points="1.0,1.0;3.9,1.0;3.9,3.9" z_order="1"/></image>'
    b'<image id="1" name="b.jpg" subset="val"><box label="cone" xtl="0" ytl="0" xbr="4.5" ybr="2.5" rotation="10"/>'
    b'<ellipse label="ball" cx="4" cy="3" rx="2" ry="1"/></image></annotations>'
)


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    makers = {
        "cvat-xml": (make_cvat_xml, "cvat"),
        "label-studio": (make_label_studio, "label-studio"),
        "roboflow": (make_roboflow, "roboflow"),
        "via": (make_via, "via"),
        "archive": (make_archive, "auto"),
    }
    return {name: Reader(name, maker, functools.partial(read, kind)) for name, (maker, kind) in makers.items()}


def read(kind: str, folder: Path) -> None:
    """Read it as `rcil data convert` does."""
    packed = folder / "export.zip"
    convert(kind, packed if packed.exists() else folder / "export", folder / "site")


def make_cvat_xml(random: Random) -> Case:
    """CVAT for images: one XML file and its images."""
    files = {"export/annotations.xml": XML, "export/images/a.png": png(), "export/images/val/b.jpg": jpeg()}
    return spoilt(random, files)


def make_label_studio(random: Random) -> Case:
    """Label Studio: tasks with brush strokes, and sometimes the configuration of the project."""
    files = {
        "export/tasks.json": damaged_json(random, LABEL_STUDIO),
        "export/images/a.png": png(),
        "export/images/b.jpg": jpeg(),
    }
    if random.random() < 0.3:
        files["export/config.xml"] = CONFIG
    if random.random() < 0.3:
        rle = [*damaged(random, bytes(encode_brush(mask() == 1)))]
        results = [{**RESULTS[0], "value": {**BRUSH, "rle": rle}}]
        files["export/tasks.json"] = json.dumps([{**LABEL_STUDIO[0], "annotations": [{"result": results}]}]).encode()
    return spoilt(random, files) if random.random() < 0.2 else files


def make_roboflow(random: Random) -> Case:
    """Roboflow: masks next to their images, and a table of values."""
    table = b"Pixel Value, Class\n0, background\n1, ball\n2, cone\n"
    files = {f"export/{split}/_classes.csv": table for split in ("train", "valid")}
    files |= {"export/train/a.jpg": jpeg(), "export/train/a_mask.png": mask_png()}
    files |= {"export/valid/b.jpg": jpeg(), "export/valid/b_mask.png": mask_png()}
    return spoilt(random, files)


def make_via(random: Random) -> Case:
    """VIA: annotations or a project as JSON, or a CSV file."""
    files = {"export/a.png": png()}
    if random.random() < 0.3:
        return spoilt(random, {**files, "export/via.csv": VIA_CSV})
    return {**files, "export/via.json": damaged_json(random, random.choice((VIA, PROJECT)))}


def make_archive(random: Random) -> Case:
    """A damaged ZIP file of a labelme export, or one with odd names."""
    names = ("a.png", "export/a.png", "../a.png", "/a.png", "a.png/", "C:a.png", "", "x" * 300, "a\\b.png", "b.json")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        archive.writestr("a.json", json.dumps(LABELME))
        archive.writestr("a.png" if random.random() < 0.7 else zipfile.ZipInfo(random.choice(names)), png())
    data = packed.getvalue()
    return {"export.zip": damaged(random, data) if random.random() < 0.9 else data}
