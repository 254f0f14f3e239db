"""A checkpoint of the official code, from the .pth file to ONNX Runtime; numbers of the official code."""

import numpy as np
import onnxruntime
import pytest
import torch
from official_models import TINY
from official_recipe import GOLDEN, image, state_dict

from rcil.checkpoint.file import save
from rcil.checkpoint.importers.official import segmenter_of
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape
from rcil_export.request import Request
from rcil_export.run import run_export


@pytest.mark.parametrize(
    ("name", "expected"),
    [("small", "step0.logits_up"), pytest.param("large", "step0_large.logits_up_every16", marks=pytest.mark.slow)],
)
def test_an_imported_checkpoint_gives_the_official_logits_through_onnx_runtime(tmp_path, name, expected):
    source = tmp_path / "official.pth"
    torch.save(state_dict(TINY["keys_step0"]), source)
    model, metadata = segmenter_of(state_dict(TINY["keys_step0"]), source)
    checkpoint = tmp_path / "imported.safetensors"
    save(checkpoint, model, metadata)
    pixels = image(name).float().numpy()
    interface = Interface(shape=InputShape.of(*pixels.shape[2:]), input="float", outputs=("mask", "logits"))
    exported = run_export(Request(checkpoint, tmp_path / "out", interface, rounds=0))
    assert exported.ok
    session = onnxruntime.InferenceSession(exported.files["model.onnx"], providers=["CPUExecutionProvider"])
    mask, logits = session.run(["mask", "logits"], {"image": pixels})
    golden = np.load(GOLDEN / "official_tiny.npz")[expected]
    every = 16 if expected.endswith("every16") else 1
    assert np.abs(logits[..., ::every, ::every] - golden).max() < 1e-4
    assert (mask[..., ::every, ::every] == golden.argmax(1)).mean() > 0.999
