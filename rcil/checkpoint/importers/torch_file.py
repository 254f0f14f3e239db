"""Reading tensors from a file that torch.save wrote, without running anything it contains."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rcil.errors import CheckpointError

# Where known programs keep their weights inside the saved dict.
_CONTAINERS = ("model_state", "state_dict", "model")
# Validation scores are saved as numpy scalars; these build numbers and nothing else.
_NUMBERS: list[Any] = [np.float64().__reduce__()[0], np.dtype, type(np.dtype("f8")), type(np.dtype("f4"))]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weight file by name, without the `module.` of data-parallel wrappers.

    Unpickling is restricted to tensors and plain numbers (`weights_only=True`): a file that contains code is refused.
    """
    if path.suffix == ".safetensors":
        content: Any = _read_safetensors(path)
    else:
        content = _unpickle(path)
    for container in _CONTAINERS:
        if isinstance(content, dict) and isinstance(content.get(container), dict):
            content = content[container]
            break
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, dict) else {}
    if not tensors:
        raise CheckpointError(f"{path} holds no named tensors", "Give the file with the model's state dict.")
    if all(key.startswith("module.") for key in tensors):
        tensors = {key.removeprefix("module."): value for key, value in tensors.items()}
    return {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"cannot read {path}: {error}", "Check the path; the file may be truncated.") from error


def _unpickle(path: Path) -> object:
    try:
        with torch.serialization.safe_globals(_NUMBERS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickle protocols: what cannot be read is an error below
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist", "Check the path.") from error
    except pickle.UnpicklingError as error:
        reason = str(error).split(". ")[-1] if "Unsupported" not in str(error) else "it holds more than tensors"
        raise CheckpointError(
            f"{path} was refused: it is not a plain weight file ({reason.splitlines()[0][:120]})",
            "Only files of tensors and numbers are read; pickled code is never run.",
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"cannot read {path}: {line[:200]}", "The file is truncated, damaged or not a torch file."
        ) from error
