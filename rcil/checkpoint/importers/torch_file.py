"""Reading tensors from a file that torch.save wrote, without running anything it contains."""

from __future__ import annotations

import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rcil.core.errors import CheckpointError, first_line

# Where known programs keep their weights inside the saved dict.
_CONTAINERS = ("model_state", "state_dict", "model")
_CODES = ("f8", "f4", "f2", "i8", "i4", "u1", "b1")


def _number_type(code: str, *_: object) -> np.dtype[Any]:
    """Stands for `numpy.dtype` in files: plain numbers alone, since a type may also describe pointers to objects."""
    if code not in _CODES:
        raise ValueError(f"'{str(code)[:20]}' is no type of a number")
    return np.dtype(code)


# Validation scores are saved as numpy scalars; these build numbers and nothing else.
_NUMBERS: list[Any] = [
    np.float64().__reduce__()[0],
    (_number_type, "numpy.dtype"),
    *(type(np.dtype(code)) for code in _CODES),
]

# Whatever an unpickler may stumble over; MemoryError: a text that claims to be longer than memory.
_UNREADABLE = (
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    struct.error,
)
_DAMAGED = "The file is truncated, damaged or not a torch file."


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
    named = content.items() if isinstance(content, dict) else ()
    tensors = {key: value for key, value in named if isinstance(key, str) and isinstance(value, Tensor)}
    if not tensors:
        raise CheckpointError(f"{path} holds no named tensors", "Give the file with the model's state dict.")
    for key, value in tensors.items():
        if not holds_its_numbers(value):
            raise CheckpointError(f"{path}: the tensor {key} stands for more numbers than it holds", _DAMAGED)
    if all(key.startswith("module.") for key in tensors):
        tensors = {key.removeprefix("module."): value for key, value in tensors.items()}
    return {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}


def holds_its_numbers(tensor: Tensor) -> bool:
    """Whether a tensor of a file is as large as it says: an expanded one of a few bytes can stand for all of memory."""
    return (
        tensor.layout == torch.strided and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
    )


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
    except _UNREADABLE as error:
        raise CheckpointError(f"cannot read {path}: {first_line(error)}", _DAMAGED) from error
