"""The readers by name; each module is imported when it is needed."""

from __future__ import annotations

from importlib import import_module

from tools.fuzz.cases import Reader

MODULES = {
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
    "cvat-xml": "labelling",
    "label-studio": "labelling",
    "roboflow": "labelling",
    "via": "labelling",
    "archive": "labelling",
    "image": "images",
    "mask": "images",
    "http": "http_bodies",
    "video": "video",
    "pictures": "video",
}
"""Module of each reader; the module's function `readers` creates them."""


def open_reader(name: str) -> Reader:
    """Return the reader with this name, or the one that `module:function` creates."""
    if ":" in name:
        module, function = name.split(":")
        made: Reader = getattr(import_module(module), function)()
        return made
    readers: dict[str, Reader] = import_module(f"tools.fuzz.readers.{MODULES[name]}").readers()
    return readers[name]
