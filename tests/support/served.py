"""Small deployed models for tests of serving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from clips import picture
from exports import described, torch_logits

from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_serve.runtime.backends import Outputs

FIXED = InputShape.of(48, 64)
OPEN = parse_shape(None, "16x16:48x64:512x512", "1:1:4")


def write_model(path: Path, shape: InputShape = OPEN, step: int = 1, **interface: object) -> Path:
    """A tiny network after `step` steps as an ONNX file; on generated clips its classes occur about equally often."""
    model, metadata = described("resnet18", step)
    rows = torch.randn(len(model.names), 16, 1, 1, generator=torch.Generator().manual_seed(step))
    model.classifier.set_rows(rows, torch.zeros(len(rows)))
    logits = torch.from_numpy(torch_logits(model, metadata, picture(3, 48, 64)[None]))
    spread = logits.std(dim=(0, 2, 3))
    model.classifier.set_rows(rows / spread[:, None, None, None], -logits.mean(dim=(0, 2, 3)) / spread)
    write_onnx(path, to_onnx(fold(model)[0], metadata, Interface(shape=shape, **interface)))
    return path


class Threshold:
    """A backend whose mask is known: row 1 where red is above 127, row 2 where green is too, 0 elsewhere."""

    name, sha256, device = "threshold", "0" * 64, "here"

    def __init__(self, shape: InputShape = OPEN, **interface: object) -> None:
        self.metadata = described("resnet18", 1)[1]
        self.interface = Interface(shape=shape, **interface)
        self.shapes: list[tuple[int, ...]] = []

    def run(self, batch: np.ndarray) -> Outputs:
        """See `Backend.run`."""
        self.shapes.append(batch.shape)
        return Outputs(expected(batch), None)

    def close(self) -> None:
        """See `Backend.close`."""


def expected(pixels: np.ndarray) -> np.ndarray:
    """What `Threshold` gives for RGB [..., 3]."""
    red, green = pixels[..., 0] > 127, pixels[..., 1] > 127
    return (red.astype(np.uint8) + (red & green)).astype(np.uint8)
