"""Checkpoints: headers, tensors and whole networks."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import struct
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save

from rcil.checkpoint.file import load_for_inference
from rcil.cli.tables import print_model
from rcil.model.architecture import Architecture
from rcil.model.header import METADATA_KEY, read_header
from rcil.nn.build import build
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import as_json, damaged, grown_wrong
from tools.fuzz.seeds import NAMES, metadata_document


def readers() -> dict[str, Reader]:
    """The reader of this module."""
    torch.set_num_threads(1)
    return {"checkpoint": Reader("checkpoint", make, read)}


def read(folder: Path) -> None:
    """Read it as `rcil info` and everything that loads a model does."""
    path = folder / "m.safetensors"
    header = read_header(path)
    json.dumps(header.as_document(path))
    with contextlib.redirect_stdout(io.StringIO()):
        print_model(path, header)
    load_for_inference(path)


def make(random: Random) -> Case:
    """A checkpoint with mistakes in its description, in its table of tensors, or anywhere."""
    table, data = _seed()
    match random.randrange(10):
        case 0 | 1 | 2 | 3:
            text = as_json(grown_wrong(random, metadata_document())).decode("utf-8", "replace")
            content = packed(_header({"__metadata__": {METADATA_KEY: text}}), data)
        case 4 | 5 | 6 | 7:
            few = dict(list(table.items())[: random.choice((2, 4, 8))])
            content = packed(_header(grown_wrong_table(random, few), set(few)), data)
        case 8:
            content = packed(damaged(random, _header({})), data)
        case _:
            whole = packed(_header({}), data)
            content = damaged(random, whole[: random.choice((64, 400, len(whole)))])
    return {"m.safetensors": content}


def grown_wrong_table(random: Random, table: dict[str, Any]) -> dict[str, Any]:
    """Part of a header with mistakes; a result that is not a table replaces a tensor."""
    wrong = grown_wrong(random, table)
    return wrong if isinstance(wrong, dict) else {next(iter(table)): wrong}


def packed(header: bytes, data: bytes) -> bytes:
    """Serialise a safetensors file."""
    return struct.pack("<Q", len(header)) + header + data


def _header(changed: dict[str, Any], without: Collection[str] = ()) -> bytes:
    """The header's text with `changed` entries and without those in `without`."""
    kept = [text for name, text in _entries().items() if name not in changed and name not in without]
    return b"{" + b", ".join([*filter(None, [as_json(changed)[1:-1]]), *kept]) + b"}"


@functools.cache
def _entries() -> dict[str, bytes]:
    """Every entry of the header, serialised."""
    return {name: as_json({name: entry})[1:-1] for name, entry in _seed()[0].items()}


@functools.cache
def _seed() -> tuple[dict[str, Any], bytes]:
    """Header and tensors of a network with a few hundred parameters."""
    document = metadata_document()
    model = build(Architecture.model_validate(document["architecture"]), NAMES)
    rows = dict(zip(("classifier.weight", "classifier.bias"), model.classifier.rows(), strict=True))
    body = {key: value for key, value in model.state_dict().items() if not key.startswith("classifier.")}
    tensors = {key: value.detach().contiguous() for key, value in {**body, **rows}.items()}
    content = save(tensors, {METADATA_KEY: json.dumps(document)})
    length = struct.unpack_from("<Q", content)[0]
    table: dict[str, Any] = json.loads(content[8 : 8 + length])
    return table, content[8 + length :]
