"""Checks for settings that cannot be combined, before any data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rcil.core.errors import ConfigError
from rcil.model.architecture import NormKind

if TYPE_CHECKING:
    import torch

NO_BF16 = (
    "norm inplace cannot train in bf16, because inplace-ABN has no bf16 kernels: set training.precision to fp32 or, on "
    "a GPU, fp16; or use norm abs, which computes the same"
)


def check_norm_precision(norm: NormKind, precision: str) -> None:
    """Raise a ValueError, for validators, if a norm has no kernels for a precision on any device."""
    if norm == "inplace" and precision == "bf16":
        raise ValueError(NO_BF16)


def check_augmentation(augmentation: str, scale: float) -> None:
    """Raise a ValueError, for validators, if crops would not follow the factor by which images are resized."""
    if augmentation == "random_resized_crop" and scale != 1:
        raise ValueError(
            f"augmentation random_resized_crop resizes every part to the crop, so that networks would train at another "
            f"size than they are tested at with a scale of {scale:g}: set the scale to 1, or use resize_and_crop"
        )


def check_compatible(norm: NormKind, precision: str, device: torch.device) -> None:
    """Raise if a network with this norm cannot train on this device in this precision."""
    try:
        check_norm_precision(norm, precision)
    except ValueError as error:
        raise ConfigError(str(error), "Change the norm or the precision.") from error
    if device.type == "cuda":
        _check_on_gpu(norm, precision, device)
    elif norm == "inplace" and precision == "fp16":
        raise ConfigError(
            "norm inplace cannot train in fp16 on a CPU: inplace-ABN has such kernels for GPUs only",
            "Set training.precision=fp32, or use a network with norm abs.",
        )


def _check_on_gpu(norm: NormKind, precision: str, device: torch.device) -> None:
    import torch

    if precision == "bf16":
        with torch.cuda.device(device):
            supported = torch.cuda.is_bf16_supported()
        if not supported:
            raise ConfigError(f"{device} does not support bf16", "Set training.precision to fp16 or fp32.")
    if norm == "inplace" and not inplace_abn_has_cuda():
        raise ConfigError(
            "norm inplace cannot train on a GPU here: inplace-abn was compiled without CUDA",
            "Install it again where nvcc and a torch build for CUDA are found "
            "(pip install --no-build-isolation --force-reinstall inplace-abn), or use a network with norm abs.",
        )


def inplace_abn_has_cuda() -> bool:
    """Whether inplace-abn was built with CUDA; only such a build can reduce statistics over processes."""
    from rcil.nn.units.norms import inplace_abn_classes

    inplace_abn_classes()
    from inplace_abn import _backend

    return hasattr(_backend, "reduce_statistics")
