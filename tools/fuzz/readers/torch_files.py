"""Files written by torch: weights of other projects, and the state that a run is resumed from."""

from __future__ import annotations

import functools
import io
import pickle
import warnings
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import torch

from rcil.checkpoint.importers import import_file
from rcil.checkpoint.importers.torch_file import read_tensors
from rcil.methods import make_method
from rcil.training.state import Position, StepState
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import NUMBERS, TEXTS, Raw, damaged, grown_wrong


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    torch.set_num_threads(1)
    state = _state()
    state.optimiser.load_state_dict(state.optimiser.state_dict())  # the first load imports many modules of torch
    return {
        "weights": Reader("weights", make_weights, read_weights),
        "resume": Reader("resume", make_state, read_state),
    }


def read_weights(folder: Path) -> None:
    """Read it as `rcil import` does."""
    (path,) = folder.iterdir()
    read_tensors(path)
    import_file(path, folder / "out" / "m.safetensors")


def read_state(folder: Path) -> None:
    """Read it as `rcil train --resume` does."""
    _state().load(folder / "state.pt")


def make_weights(random: Random) -> Case:
    """A weight file of one of the known networks with mistakes in its content, in its pickle, or in its bytes."""
    name, tree = random.choice(_weights())
    old = random.random() < 0.2
    ending = random.choice((".pth", ".pth", ".pth.tar"))
    if random.random() < 0.4:
        return {f"w{ending}": _saved(grown_wrong(random, tree, _odd), old)}
    return {f"w{ending}": _damaged(random, _whole(name, old))}


def make_state(random: Random) -> Case:
    """A resume state with mistakes in its content, in its pickle, or in its bytes."""
    if random.random() < 0.6:
        return {"state.pt": _saved(grown_wrong(random, _state_tree(), _odd), False)}
    return {"state.pt": _damaged(random, _state_file())}


def _odd(random: Random) -> Any:
    match random.randrange(6):
        case 0:
            return random.choice(NUMBERS)
        case 1:
            return random.choice((None, True, [], {}, (), 1.5, float("nan"), float("inf"), b"x", {1: 2}, 10**30))
        case 2:
            return random.choice(TEXTS)
        case 3:
            shape = random.choices((0, 1, 2, 3), k=random.randrange(5))
            kind = random.choice((torch.float32, torch.int64, torch.bool, torch.float16, torch.uint8, torch.complex64))
            return torch.zeros(shape, dtype=kind)
        case 4:
            return torch.zeros(1).expand(random.choice((2, 1000, 2**20)))
        case _:
            return [random.choice(NUMBERS) for _ in range(random.randrange(4))]


def _saved(tree: Any, old: bool) -> bytes:
    """Serialise a document as torch does; `Raw` becomes plain text."""
    file = io.BytesIO()
    torch.save(_plain(tree), file, _use_new_zipfile_serialization=not old)
    return file.getvalue()


def _plain(tree: Any) -> Any:
    match tree:
        case Raw():
            return str(tree)
        case dict():
            return {key: _plain(value) for key, value in tree.items()}
        case list() if tree and isinstance(tree[0], tuple) and type(tree) is not list:
            return dict(tree)
        case list():
            return [_plain(value) for value in tree]
        case _:
            return tree


def _damaged(random: Random, data: bytes) -> bytes:
    """Damage the bytes, or one file of the archive while its checksums stay correct."""
    if not zipfile.is_zipfile(io.BytesIO(data)) or random.random() < 0.3:
        return damaged(random, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in files if n.endswith("data.pkl")) if random.random() < 0.8 else random.choice(list(files))
    match random.randrange(8):
        case 0:
            del files[name]
        case 1:
            files[name] = pickle.dumps(random.choice(([], {"a": 1}, Path("x"), print, 2**70, {"state_dict": {}})), 2)
        case _:
            files[name] = damaged(random, files[name])
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for entry, content in files.items():
            archive.writestr(zipfile.ZipInfo(entry), content)
    return out.getvalue()


@functools.cache
def _weights() -> list[tuple[str, dict[str, Any]]]:
    """Weights that barely pass for known networks: their characteristic keys and a few more tensors."""
    some = torch.zeros(2, 3, 1, 1)
    official = {"body.mod1.conv1.weight": some, "cls.0.weight": some, "cls.0.bias": torch.zeros(2)}
    resnet = {"conv1.weight": some, "layer1.0.conv1.weight": some, "fc.weight": torch.zeros(2, 2), "bn1.bias": some}
    lite = {"_conv_stem.weight": some, "_bn0.weight": torch.zeros(2), "_fc.bias": torch.zeros(2)}
    lite |= {f"_blocks.{i}._project_conv.weight": torch.zeros(320, 1, 1, 1) for i in range(16)}
    abn = {"state_dict": {f"module.{key}": some for key in ("mod1.conv1.weight", "mod1.bn1.weight", "fc.weight")}}
    trees: list[tuple[str, dict[str, Any]]] = [
        ("official", {"epoch": 3, "model_state": official, "best_score": 0.5, "trainer_state": {}}),
        ("resnet", dict(resnet)),
        ("lite", dict(lite)),
        ("abn", abn),
    ]
    return trees


@functools.cache
def _whole(name: str, old: bool) -> bytes:
    return _saved(dict(_weights())[name], old)


@functools.cache
def _state() -> StepState:
    model: Any = torch.nn.Linear(2, 2)  # replaces a network: it has the attributes that are used
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, 10)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return StepState(model, optimiser, schedule, scaler, make_method("rcil"), Position(rows=[{"loss": 1.0}]))


@functools.cache
def _state_tree() -> dict[str, Any]:
    state = _state()
    return {
        "model": dict(state.model.state_dict()),
        "optimiser": state.optimiser.state_dict(),
        "schedule": state.schedule.state_dict(),
        "scaler": state.scaler.state_dict(),
        "method": state.method.state_dict(),
        "position": dict(vars(state.position)),
        "rng": torch.get_rng_state(),
        "cuda_rng": None,
    }


@functools.cache
def _state_file() -> bytes:
    return _saved(_state_tree(), False)
