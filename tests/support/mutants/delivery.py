"""Delivered folders and Triton repositories with one thing wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from mutants.editing import a_conv, edit, stored
from rcil.files import sha256_of

Place = Literal["folder", "triton"]
VERSION = "rcil/1"


@dataclass(frozen=True)
class Delivery:
    """One way to spoil what is delivered around a graph."""

    kind: str
    place: Place
    change: Callable[[Path], str]
    """Changes the folder; returns what has to be named."""


DELIVERIES: dict[str, Delivery] = {}


def delivery(place: Place, kind: str) -> Callable[[Callable[[Path], str]], Callable[[Path], str]]:
    """Adds a function to the list under its name."""

    def add(change: Callable[[Path], str]) -> Callable[[Path], str]:
        DELIVERIES[change.__name__] = Delivery(kind, place, change)
        return change

    return add


def _json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2))


def _sidecar(kind: str, name: str, field: str, change: Callable[[dict[str, Any]], None]) -> None:
    def edited(folder: Path) -> str:
        _json(folder / "model.engine.json", change)
        return field

    edited.__name__ = name
    delivery("folder", kind)(edited)


@delivery("folder", "an engine with a changed byte")
def engine_byte(folder):
    path = folder / "model.engine"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return "engine_sha256"


@delivery("folder", "an engine of another model, with a fitting hash in its sidecar")
def engine_swapped(folder):
    path = folder / "model.engine"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    _json(folder / "model.engine.json", lambda sidecar: sidecar.update(engine_sha256=sha256_of(path)))
    return "model.engine, built by"


_sidecar(
    "the hash of the graph in the sidecar", "sidecar_onnx", "onnx_sha256", lambda s: s.update(onnx_sha256="0" * 64)
)
_sidecar(
    "the name of the graph in the sidecar", "sidecar_file", "onnx_file", lambda s: s.update(onnx_file="other.onnx")
)
_sidecar("the precision in the sidecar", "sidecar_precision", "precision", lambda s: s.update(precision="fp16"))
_sidecar("the GPUs in the sidecar", "sidecar_gpus", "model.engine, built by", lambda s: s.update(gpus=["sm89"]))
_sidecar(
    "the type of an output in the sidecar",
    "sidecar_dtype",
    "outputs[0].dtype",
    lambda s: s["outputs"][0].update(dtype="int32"),
)
_sidecar(
    "the precision of convs in the sidecar",
    "sidecar_convs",
    "conv_layers",
    lambda s: s.update(conv_layers={"fp16": 29}),
)
_sidecar(
    "a class in the sidecar",
    "sidecar_class",
    "metadata.rcil",
    lambda s: s["metadata"].update(rcil=s["metadata"]["rcil"].replace('"name":"a"', '"name":"z"')),
)


@delivery("folder", "a sidecar without its engine")
def engine_gone(folder):
    (folder / "model.engine").unlink()
    return "model.engine.json"


@delivery("folder", "the hash of the model in the report")
def report_model(folder):
    return _report_hash(folder, "model.onnx")


@delivery("folder", "the hash of the checkpoint in the report")
def report_checkpoint(folder):
    return _report_hash(folder, "checkpoint")


@delivery("folder", "the hash of the engine in the report")
def report_engine(folder):
    return _report_hash(folder, "model.engine")


def _report_hash(folder, name):
    def change(report):
        text = report["facts"][name]
        at = text.index("sha256 ") + len("sha256 ")
        report["facts"][name] = f"{text[:at]}{'0' * 12}"

    _json(folder / "report.json", change)
    return f"facts.{name}"


@delivery("folder", "a failed item in a report that says that all is well")
def report_item(folder):
    def change(report):
        report["results"][0]["items"][0]["passed"] = False

    _json(folder / "report.json", change)
    return "ok"


@delivery("folder", "a file that no export writes")
def extra_file(folder):
    (folder / "libnvinfer_plugin.so").write_bytes(b"payload")
    return "libnvinfer_plugin.so"


@delivery("folder", "a folder that no export writes")
def extra_folder(folder):
    (folder / ".cache").mkdir()
    (folder / ".cache" / "payload").write_bytes(b"payload")
    return ".cache"


@delivery("folder", "a weight of the graph in a whole folder")
def folder_weight(folder):
    return _weight(folder / "model.onnx")


@delivery("triton", "a weight of the served graph")
def triton_weight(folder):
    return _weight(folder / VERSION / "model.onnx")


@delivery("triton", "the queue in config.pbtxt")
def triton_config(folder):
    path = folder / "rcil" / "config.pbtxt"
    path.write_text(path.read_text().replace("max_queue_size: 64", "max_queue_size: 6400"))
    return "config.pbtxt, line"


@delivery("triton", "another model file in config.pbtxt")
def triton_file(folder):
    path = folder / "rcil" / "config.pbtxt"
    path.write_text(path.read_text().replace('"model.onnx"', '"other.onnx"'))
    return "config.pbtxt, line"


@delivery("triton", "the hash of the model in step.json")
def triton_hash(folder):
    _json(folder / VERSION / "step.json", lambda step: step.update(model_sha256="0" * 64))
    return "model_sha256"


@delivery("triton", "a colour in step.json")
def triton_colour(folder):
    _json(folder / VERSION / "step.json", lambda step: step["classes"][1].update(colour=[1, 2, 3]))
    return "classes[1].colour"


@delivery("triton", "the names in labels.txt")
def triton_labels(folder):
    path = folder / "rcil" / "labels.txt"
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([second, first, *rest]) + "\n")
    return "labels.txt, line"


@delivery("triton", "a file that no export writes, beside the served graph")
def triton_extra(folder):
    (folder / VERSION / "model.py").write_text("import os\n")
    return f"{VERSION}/model.py"


def _weight(path):
    document = onnx.load(path)
    tensor = stored(document, a_conv(document).input[1])
    edit(tensor, lambda w: w * np.float32(1.001))
    path.write_bytes(document.SerializeToString(deterministic=True))
    return tensor.name
