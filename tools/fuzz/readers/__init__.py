"""The readers by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from tools.fuzz.cases import Reader

PLACES = {
    "checkpoint": "checkpoint",
    "weights": "torch_files",
    "resume": "torch_files",
    "onnx": "onnx_files",
    "sidecar": "documents",
    "baseline": "documents",
    "records": "records",
    "task": "tasks",
    "classify-task": "tasks",
    "site": "site",
    "voc": "datasets",
    "ade": "datasets",
    "cityscapes": "datasets",
    "classes": "datasets",
    "coco": "converters",
    "cvat": "converters",
    "labelme": "converters",
    "yolo": "converters",
    "image": "images",
    "mask": "images",
    "http": "http_bodies",
    "video": "video",
    "pictures": "video",
}
"""Module of each reader; its `readers` makes them."""


def open_reader(name: str) -> Reader:
    """The reader of this name, or of a `module:function` elsewhere that makes one."""
    if ":" in name:
        module, function = name.split(":")
        made: Reader = getattr(import_module(module), function)()
        return made
    readers: dict[str, Reader] = import_module(f"tools.fuzz.readers.{PLACES[name]}").readers()
    return readers[name]
