"""Reading tensors from a file that torch.save wrote, without running anything it contains."""

from __future__ import annotations

import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rcil.checkpoint.file import read_tensors as read_safetensors
from rcil.core.errors import CheckpointError, first_line

# Keys under which known programs store the weights in the saved dict.
_CONTAINERS = ("model_state", "model_state_dict", "state_dict", "model", "net", "network")
_CODES = ("f8", "f4", "f2", "i8", "i4", "u1", "b1")


def _number_type(code: str, *_: object) -> np.dtype[Any]:
    """Replaces `numpy.dtype` in files and accepts plain numbers only: a dtype can also describe object pointers."""
    if code not in _CODES:
        raise ValueError(f"'{str(code)[:20]}' is not a numeric type")
    return np.dtype(code)


# Validation scores are saved as numpy scalars. These constructors build numbers only.
_NUMBERS: list[Any] = [
    np.float64().__reduce__()[0],
    (_number_type, "numpy.dtype"),
    *(type(np.dtype(code)) for code in _CODES),
]

# Everything that an unpickler may raise; MemoryError for a string that claims to be longer than memory.
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
    content: Any = read_safetensors(path) if path.suffix == ".safetensors" else _unpickle(path)
    for container in _CONTAINERS:
        if isinstance(content, dict) and isinstance(content.get(container), dict):
            content = content[container]
            break
    named = content.items() if isinstance(content, dict) else ()
    tensors = {key: value for key, value in named if isinstance(key, str) and isinstance(value, Tensor)}
    if not tensors:
        raise CheckpointError(f"{path} holds no named tensors", "Give the file with the model's state dict.")
    for key, value in tensors.items():
        if not is_fully_stored(value):
            raise CheckpointError(f"{path}: the tensor {key} claims more numbers than it stores", _DAMAGED)
    if all(key.startswith("module.") for key in tensors):
        tensors = {key.removeprefix("module."): value for key, value in tensors.items()}
    return {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}


def is_fully_stored(tensor: Tensor) -> bool:
    """Whether a tensor's storage has all of its numbers; an expanded tensor of a few bytes can claim all of memory."""
    return (
        tensor.layout == torch.strided and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
    )


def _unpickle(path: Path) -> object:
    try:
        with torch.serialization.safe_globals(_NUMBERS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old pickle protocols; unreadable files raise below
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
