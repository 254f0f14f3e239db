"""The official values, and the tolerances their README states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

GOLDEN = Path(__file__).parents[2] / "golden"
VALUE_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}
GRADIENT_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}


class Golden:
    """`official_losses.npz` and `.json`."""

    def __init__(self) -> None:
        with np.load(GOLDEN / "official_losses.npz", allow_pickle=False) as archive:
            self._arrays = {name: archive[name] for name in archive.files}
        self.json: dict[str, Any] = json.loads((GOLDEN / "official_losses.json").read_text())

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.from_numpy(self._arrays[name].copy()).to(dtype or torch.from_numpy(self._arrays[name]).dtype)

    def leaf(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        return self.tensor(name, dtype).requires_grad_()

    def check_value(self, actual: torch.Tensor, expected: float) -> None:
        assert actual.item() == pytest.approx(expected, rel=VALUE_TOLERANCE[actual.dtype], abs=0)

    def check_array(self, actual: torch.Tensor | None, name: str) -> None:
        """Within the gradient tolerance of the array's largest magnitude."""
        assert actual is not None
        expected = self.tensor(name, torch.float64)
        assert actual.shape == expected.shape
        worst = (actual.detach().double() - expected).abs().max() / expected.abs().max()
        assert worst.item() < GRADIENT_TOLERANCE[actual.dtype]


@pytest.fixture(scope="session")
def golden() -> Golden:
    return Golden()


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    result: torch.dtype = request.param
    return result
