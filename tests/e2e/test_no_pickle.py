"""Code in a file is never run, whatever command the file is given to."""

import ast
import contextlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from sites import write_sample
from typer.testing import CliRunner

from rcil.checkpoint.importers.torch_file import read_tensors
from rcil.cli.app import app as rcil
from rcil.core.errors import CheckpointError, RcilError
from rcil.training.state import read_state
from rcil_export.cli.app import app as rcil_export
from rcil_serve.cli.app import app as rcil_serve

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for name in ("rcil", "export", "serve", "tools") for path in (ROOT / name).rglob("*.py"))


class Attack:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch '{self.mark}'",)


def written(path, mark, form):
    """The attack as torch saves it, beside weights, or as a bare pickle."""
    if form == "torch":
        torch.save({"model_state": {"w": torch.zeros(1)}, "more": Attack(mark)}, path)
    elif form == "old torch":
        torch.save({"w": Attack(mark)}, path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(pickle.dumps(Attack(mark)))
    return path


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "code was run"


def test_the_attack_works_on_those_who_unpickle(tmp_path, mark):
    pickle.loads(written(tmp_path / "a", mark, "pickle").read_bytes())
    assert mark.exists()


COMMANDS = {
    "import": (rcil, "import {pth} -o {out}.safetensors"),
    "import, other ending": (rcil, "import {safetensors} -o {out}.safetensors"),
    "info": (rcil, "info {pth}"),
    "info, other ending": (rcil, "info {safetensors}"),
    "add-class --from": (rcil, "add-class --from {safetensors} --data {site} --class b -o {out}"),
    "pick --from": (rcil, "pick {site} --from {pth} -o {out}"),
    "prelabel --from": (rcil, "prelabel --from {pth} --images {site}/images -o {out}"),
    "eval": (rcil, "eval {safetensors} --data {site} -o {out}.json"),
    "export": (rcil_export, "{safetensors} -o {out} --target onnx"),
    "export, other ending": (rcil_export, "{pth} -o {out}"),
    "fold": (rcil_export, "fold {safetensors} -o {out}.safetensors"),
    "check": (rcil_export, "check {safetensors} {onnx}"),
    "inspect": (rcil_export, "inspect {onnx}"),
    "inspect an engine": (rcil_export, "inspect {engine}"),
    "images": (rcil_serve, "images {site}/images/train --model {onnx} -o {out}"),
    "video": (rcil_serve, "video {site}/images/train --model {onnx} -o {out}.mp4"),
    "http": (rcil_serve, "http --model {onnx} --port 0"),
    "http with an engine": (rcil_serve, "http --model {engine} --port 0"),
}


@pytest.mark.parametrize("form", ["torch", "pickle"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands(tmp_path, mark, command, form):
    program, line = COMMANDS[command]
    files = {e: written(tmp_path / f"m.{e}", mark, form) for e in ("pth", "safetensors", "onnx", "engine")}
    write_sample(tmp_path / "site", "train", "a", torch.zeros(8, 8).numpy())
    (tmp_path / "site" / "classes.txt").write_text("background\na\nb\n")
    words = line.format(**files, site=tmp_path / "site", out=tmp_path / "out").split()
    result = CliRunner().invoke(program, words)
    assert isinstance(result.exception, RcilError), result.output
    assert not mark.exists()


@pytest.mark.parametrize("form", ["torch", "old torch", "pickle"])
def test_the_state_of_an_interrupted_run(tmp_path, mark, form):
    with pytest.raises(RcilError, match="cannot read the state"):
        read_state(written(tmp_path / "state.pt", mark, form))
    with pytest.raises(CheckpointError):
        read_tensors(written(tmp_path / "m.pth", mark, form))
    assert not mark.exists()


class ObjectType:
    """A numpy type that holds pointers: read as a number it would be whatever the file says."""

    def __reduce__(self):
        return np.dtype, ("O8", False, True)


def test_numpy_types_other_than_numbers_are_refused(tmp_path):
    for score, fine in ((np.float64(0.5), True), (np.float32(0.5), True), (ObjectType(), False)):
        torch.save({"state_dict": {"w": torch.zeros(1)}, "score": score}, tmp_path / "m.pth")
        with contextlib.nullcontext() if fine else pytest.raises(CheckpointError, match="is not a numeric type"):
            assert set(read_tensors(tmp_path / "m.pth")) == {"w"}


def calls_in(path):
    """Dotted names of what a file calls, with the names of keyword arguments that are True or False."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            fixed = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            yield ast.unparse(node.func), fixed


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_loads_code_or_decodes_unseen(path):
    """What unpickles, evaluates or opens a shell; and pictures are decoded only where their size was looked at."""
    decoders = {"rcil/core/images.py", "rcil/core/masks.py", "rcil/labelling/frames.py", "rcil/scenes/clip.py"}
    place = str(path.relative_to(ROOT))
    for name, fixed in calls_in(path):
        assert name not in {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}, name
        assert not name.startswith(("pickle.load", "joblib.", "marshal.", "shelve.", "dill.", "cloudpickle.")), name
        assert not fixed.get("shell") and not fixed.get("allow_pickle"), name
        assert name != "torch.load" or fixed.get("weights_only") is True, name
        if name in {"cv2.imread", "cv2.imdecode", "cv2.VideoCapture"} and not place.startswith("tools/"):
            assert place in decoders, f"{name}: use rcil.core.images or rcil.core.masks"
        if name == "av.open":
            assert place.startswith("tools/") or place in {
                "rcil/cli/probes.py",
                "serve/rcil_serve/stream/outputs/encoders.py",  # writes only, to try encoders
                "serve/rcil_serve/stream/outputs/movie.py",
                "serve/rcil_serve/stream/sources/container.py",
                "serve/rcil_serve/stream/sources/tracks.py",  # only memory that the package itself wrote
            }, f"{name}: use open_container"
