import subprocess
import sys

import numpy as np
import onnx
import pytest
from exports import described, photographs, run_onnx
from served import FIXED, OPEN, write_model

from rcil.core.errors import CheckpointError, ConfigError, RcilError, RunError
from rcil_serve.runtime.backends import open_backend, outputs_of

MASK = np.zeros((2, 4, 5), np.uint8)


def test_an_onnx_file_gives_what_onnx_runtime_gives(tmp_path):
    path = write_model(tmp_path / "m.onnx", outputs=("mask", "confidence"))
    images = photographs(2, 40, 56)
    backend = open_backend(path, "cpu", 1)
    found, wanted = backend.run(images), run_onnx(onnx.load(path), images)
    np.testing.assert_array_equal(found.mask, wanted["mask"])
    np.testing.assert_allclose(found.confidence, wanted["confidence"], rtol=1e-6)
    assert backend.device == "CPU" and backend.interface.shape == OPEN
    assert [c.name for c in backend.metadata.classes] == [c.name for c in described("resnet18", 1)[1].classes]


def test_logits_stand_in_for_a_mask(tmp_path):
    images = photographs(1, 48, 64)
    by_logits = open_backend(write_model(tmp_path / "l.onnx", FIXED, outputs=("logits",)), "cpu", 1).run(images)
    by_mask = open_backend(write_model(tmp_path / "m.onnx", FIXED), "cpu", 1).run(images)
    np.testing.assert_array_equal(by_logits.mask, by_mask.mask)
    assert by_logits.mask.dtype == np.uint8 and by_logits.confidence is None


@pytest.mark.parametrize(
    ("name", "data", "kind", "words"),
    [
        ("absent.onnx", None, CheckpointError, "cannot read .*absent.onnx: No such file"),
        ("text.onnx", b"no graph", CheckpointError, "text.onnx is not an ONNX file, or damaged"),
        ("m.safetensors", b"x", ConfigError, "Export it first: rcil-export .*m.safetensors"),
        ("m.bin", b"x", ConfigError, "not a model that can be served"),
        ("m.engine", b"x", CheckpointError, "m.engine.json: No such file"),
    ],
)
def test_what_is_no_model_is_named(tmp_path, name, data, kind, words):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(kind, match=words):
        open_backend(tmp_path / name)


def test_devices_that_are_not_here_are_named(tmp_path):
    path = write_model(tmp_path / "m.onnx", FIXED)
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        open_backend(path, "gpu")
    with pytest.raises(ConfigError, match="no execution provider 'TensorrtExecutionProvider' here"):
        open_backend(path, "tensorrt")


def test_a_size_that_the_graph_does_not_take_is_an_error(tmp_path):
    backend = open_backend(write_model(tmp_path / "m.onnx", FIXED), "cpu", 1)
    with pytest.raises(RcilError, match=r"cannot run .*m\.onnx"):
        backend.run(photographs(1, 40, 64))


def test_serving_imports_no_torch(tmp_path):
    path = write_model(tmp_path / "m.onnx", FIXED)
    program = (
        "import sys; from rcil_serve.video import run; from rcil_serve import cli, images;"
        "from rcil_serve.runtime.backends import open_backend; from pathlib import Path;"
        f"open_backend(Path({str(path)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_gpu_can_be_chosen_by_its_number(tmp_path, monkeypatch):
    from rcil_export.runtime import sessions
    from rcil_serve.runtime import engine_backend, onnx_backend

    opened = []

    def refuse(source, options, providers, enable_fallback):
        opened.append(providers)
        raise RuntimeError("no GPU")

    path = write_model(tmp_path / "model.onnx", FIXED)
    monkeypatch.setattr(sessions, "check_providers", lambda providers: None)
    monkeypatch.setattr(sessions.ort, "InferenceSession", refuse)
    monkeypatch.setattr(onnx_backend, "is_listed", lambda provider: True)
    for device in ("cuda:1", "cuda"):
        with pytest.raises(RcilError, match="no GPU"):
            open_backend(path, device)
    cuda, cpu = "CUDAExecutionProvider", "CPUExecutionProvider"
    assert opened == [[(cuda, {"device_id": "1"}), cpu], [cuda, cpu]]

    monkeypatch.setattr(engine_backend, "EngineBackend", lambda path, device: device)
    assert [open_backend(tmp_path / "model.engine", device) for device in ("auto", "cuda", "cuda:2")] == [0, 0, 2]


def test_a_mask_is_computed_from_logits():
    logits = np.zeros((2, 3, 4, 5), np.float32)
    logits[:, 2] = 1
    assert (outputs_of({"logits": logits}, "a.onnx").mask == 2).all()


@pytest.mark.parametrize(
    "values",
    [
        {"mask": MASK[0]},
        {"mask": MASK, "confidence": np.ones((), np.float32)},
        {"mask": MASK, "confidence": np.zeros((2, 4, 6), np.float32)},
        {"logits": np.zeros((2, 4, 5), np.float32)},
        {"scores": MASK},
    ],
)
def test_outputs_of_other_shapes_are_refused(values):
    with pytest.raises(RunError, match=r"a\.onnx outputs"):
        outputs_of(values, "a.onnx")
