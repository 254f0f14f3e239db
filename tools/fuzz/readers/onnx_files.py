"""Exported ONNX files, read as `rcil-export inspect` and as a server do."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rcil.core.errors import RcilError
from rcil.model.header import METADATA_KEY
from rcil_export.graph.interface import INTERFACE_KEY
from rcil_export.inspect_file import describe, lines
from rcil_serve.http.models import Model
from rcil_serve.http.reload import checked_mask
from rcil_serve.runtime.onnx_backend import OnnxBackend
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import damaged, damaged_json
from tools.fuzz.seeds import interface_document, metadata_document, pixels


def readers() -> dict[str, Reader]:
    """The reader of this module."""
    return {"onnx": Reader("onnx", make, read)}


def read(folder: Path) -> None:
    """Describe it, then load and run it; both are tried even if the first one refuses it."""
    path = folder / "m.onnx"
    try:
        document = describe(path)
        json.dumps(document)
        list(lines(document))
    except RcilError as error:
        refusal: RcilError | None = error
    else:
        refusal = None
    model = Model(OnnxBackend(path, threads=1))
    checked_mask(model, pixels())
    model.describe()
    if refusal is not None:
        raise refusal


def make(random: Random) -> Case:
    """A file with mistakes in one of its two texts, in its structure, or in its bytes."""
    document = onnx.ModelProto.FromString(_seed())
    match random.randrange(10):
        case 0 | 1 | 2:
            _set(document, METADATA_KEY, damaged_json(random, metadata_document()))
        case 3 | 4 | 5:
            _set(document, INTERFACE_KEY, damaged_json(random, interface_document()))
        case 6:
            entries = document.metadata_props
            entry = random.choice(entries)
            match random.randrange(3):
                case 0:
                    entries.remove(entry)
                case 1:
                    entries.add(key=entry.key, value=random.choice(("", "{}", "null", entry.value)))
                case _:
                    entry.key = random.choice(("", "x", METADATA_KEY, INTERFACE_KEY))
        case 7:
            _disturb(random, document)
        case _:
            return {"m.onnx": damaged(random, document.SerializeToString())}
    return {"m.onnx": document.SerializeToString()}


def _set(document: onnx.ModelProto, key: str, text: bytes) -> None:
    next(entry for entry in document.metadata_props if entry.key == key).value = text.decode("utf-8", "replace")


def _disturb(random: Random, document: onnx.ModelProto) -> None:
    """Change something in the graph."""
    graph = document.graph
    match random.randrange(7):
        case 0:
            node = random.choice(graph.node)
            node.op_type = random.choice(("", "Identity", "Softmax", "Loop", "x" * 1000, "ArgMax"))
        case 1:
            del graph.output[random.randrange(len(graph.output))]
        case 2:
            del graph.node[random.randrange(len(graph.node))]
        case 3:
            tensor = random.choice(graph.initializer)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", random.choice(("x", "../x", "/etc/hostname", "m.onnx"))), ("offset", "0")):
                tensor.external_data.add(key=key, value=value)
        case 4:
            random.choice(graph.initializer).dims.append(random.choice((0, 2, 2**40, -1)))
        case 5:
            random.choice((*graph.input, *graph.output)).name = random.choice(("", "x", "mask", "logits"))
        case _:
            tensor = random.choice(graph.initializer)
            tensor.raw_data = damaged(random, tensor.raw_data)


@functools.cache
def _seed() -> bytes:
    """A graph of one conv whose mask follows the red channel, with the metadata that the exporter writes."""
    weight = np.zeros((3, 3, 1, 1), np.float32)
    weight[:, 0, 0, 0] = (0, 80, 160)
    nodes = [
        helper.make_node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "weight"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["index"], axis=1, keepdims=0),
        helper.make_node("Cast", ["index"], ["mask"], to=TensorProto.UINT8),
        helper.make_node("ReduceMax", ["logits", "axis"], ["confidence"], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.UINT8, ["N", "H", "W", 3])]
    kinds = {"mask": TensorProto.UINT8, "confidence": TensorProto.FLOAT}
    outputs = [helper.make_tensor_value_info(name, kind, ["N", "H", "W"]) for name, kind in kinds.items()]
    values = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(np.array([1], np.int64), "axis")]
    graph = helper.make_graph(nodes, "segmenter", inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    texts = {METADATA_KEY: json.dumps(metadata_document()), INTERFACE_KEY: json.dumps(interface_document())}
    helper.set_model_props(model, texts)
    return model.SerializeToString()
