"""Weights, images and checksums by the recipe in tests/golden/official_tiny.json."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"
IMAGES = {"small": (1, 3, 97, 129), "large": (1, 3, 336, 560), "train": (2, 3, 97, 129)}


def golden_json(name: str) -> dict:  # type: ignore[type-arg]
    return json.loads((GOLDEN / f"{name}.json").read_text())


def generator(text: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(text.encode()))


def parameter(key: str, shape: tuple[int, ...], salt: str = "") -> Tensor:
    rs = generator(salt + key)
    if key.endswith("num_batches_tracked"):
        return torch.tensor(0)
    if len(shape) == 4:
        value = rs.randn(*shape) * np.sqrt(1.5 / np.prod(shape[1:]))
    elif key.endswith(".running_mean"):
        value = 0.2 * rs.randn(*shape)
    elif key.endswith(".running_var"):
        value = 0.5 + rs.rand(*shape)
        value[7::16] = 1e-9
    elif key.endswith(".weight"):
        value = 0.5 + rs.rand(*shape)
        value[1::3] *= -1
        value[7::16] *= 1e-3
    else:
        value = 0.1 * rs.randn(*shape)
    return torch.from_numpy(np.asarray(value, dtype=np.float32))


def state_dict(keys: list[tuple[str, list[int]]], salt: str = "") -> dict[str, Tensor]:
    return {key: parameter(key, tuple(shape), salt) for key, shape in keys}


def image(name: str) -> Tensor:
    return torch.from_numpy(generator(f"image/{name}").randn(*IMAGES[name]).astype(np.float32))


def probe(name: str, value: Tensor | NDArray[np.floating]) -> float:  # type: ignore[type-arg]
    flat = np.asarray(value.detach() if isinstance(value, Tensor) else value, dtype=np.float64).ravel()
    return float(generator(f"probe/{name}").randn(flat.size) @ flat)
