"""How much memory training a step needs, computed from tensor shapes, and how much is free."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from rcil.core.errors import TrainingError
from rcil.hardware.cpu import give_back_memory
from rcil.nn import Network
from rcil.nn.cost import on_meta
from rcil.tasks.task import TrainingSection

GIB = 2**30
LOSS_COPIES = 4
"""Arrays of the size of the full-resolution logits that the losses keep for the backward pass."""


def peak_memory(student: Network, teacher: Network | None, images: int, settings: TrainingSection) -> int:
    """Bytes of weights, gradients, optimiser state and activations for `images` crops."""
    shadow = on_meta(student).train()
    x = torch.empty(images, 3, settings.crop, settings.crop, device="meta")
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        maps = shadow(x, maps="before")
    for parameter in shadow.parameters():
        kept.pop(parameter.untyped_storage()._cdata, None)
    activations = sum(t.untyped_storage().nbytes() for t in kept.values())
    logits = _bytes([maps.logits])
    share = 1.0 if settings.precision == "fp32" else 0.6
    trained = _bytes(p for p in student.parameters() if p.requires_grad)
    total = _bytes(student.parameters()) + trained * (1 + _moments(settings))
    if teacher is not None:
        seen = (*maps.stages, maps.decoder)
        total += _bytes(teacher.parameters()) + _bytes(seen) + logits
    return int(total + share * activations + LOSS_COPIES * logits)


def _moments(settings: TrainingSection) -> int:
    """Number of values that the optimiser keeps per weight."""
    return 2 if settings.optimiser == "adamw" else int(settings.momentum > 0)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def check_memory(needed: int, device: torch.device, settings: TrainingSection, step: int) -> None:
    """Raise before training if there is not enough memory.

    Args:
        needed: Bytes from `peak_memory`, without those already allocated on the device.
        device: The training device.
        settings: Training settings, for the hint.
        step: Number of the step, for the message.
    """
    free = free_memory(device)
    if free is None or needed <= free:
        return
    pieces = _pieces(settings.batch, settings.accumulate * needed / max(free, 1))
    remedy = "Lower training.crop" if pieces is None else f"Set training.accumulate to {pieces}, or lower training.crop"
    raise TrainingError(
        f"step {step} needs about {needed / GIB:.1f} GiB on {device.type} and {free / GIB:.1f} GiB are free",
        f"{remedy} or training.batch.",
    )


def _pieces(batch: int, wanted: float) -> int | None:
    """The smallest number of equal pieces of a batch that suffices; None if a piece would have a single image."""
    return next((n for n in range(1, batch // 2 + 1) if batch % n == 0 and n >= wanted), None)


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated; None if unknown.

    Memory that an allocator caches counts as used, but can be reused: torch's cached GPU blocks are added to the free
    memory reported by the driver, and glibc is asked to release the pages that it caches.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    give_back_memory()
    found = _meminfo(Path("/proc/meminfo")), _cgroup(Path("/sys/fs/cgroup"))
    return min((value for value in found if value is not None), default=None)


def weights_on(device: torch.device, models: Iterable[Network | None]) -> int:
    """Bytes of the weights that are on `device` already and no longer count as free there."""
    networks = (model for model in models if model is not None)
    return _bytes(p for model in networks for p in model.parameters() if p.device.type == device.type)


def _meminfo(path: Path) -> int | None:
    if not path.exists():
        return None
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _cgroup(folder: Path) -> int | None:
    """Free memory of a container; inactive page cache counts as free."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    stat = folder / "memory.stat"
    fields = dict(line.split() for line in stat.read_text().splitlines()) if stat.exists() else {}
    return int(limit) - int(used) + int(fields.get("inactive_file", 0)) if limit.isdigit() else None
