"""How much memory a step of training needs, from shapes alone, and how much there is."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from rcil.errors import TrainingError
from rcil.nn import Segmenter
from rcil.nn.cost import on_meta
from rcil.train.task import TrainingSection

GIB = 2**30
LOSS_COPIES = 4
"""Arrays of the size of the full-resolution logits that the losses keep for their backward pass."""


def peak_memory(student: Segmenter, teacher: Segmenter | None, images: int, settings: TrainingSection) -> int:
    """Bytes of weights, gradients, optimiser state and everything kept for the backward pass of `images` crops."""
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
    """Numbers that the optimiser keeps for each weight."""
    return 2 if settings.optimiser == "adamw" else int(settings.momentum > 0)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def check_memory(needed: int, device: torch.device, settings: TrainingSection, step: int) -> None:
    """Stop now, with advice, rather than in the middle of the night.

    Args:
        needed: Bytes, from `peak_memory`, without what is on the device already.
        device: Where the step trains.
        settings: For the advice.
        step: For the message.
    """
    free = free_memory(device)
    if free is None or needed <= free:
        return
    raise TrainingError(
        f"step {step} needs about {needed / GIB:.1f} GiB on {device.type} and {free / GIB:.1f} GiB are free",
        f"Set training.accumulate to {_next_divisor(settings.batch, settings.accumulate)}, or lower training.batch "
        "or training.crop.",
    )


def _next_divisor(batch: int, accumulate: int) -> int:
    larger = (n for n in range(accumulate + 1, batch + 1) if batch % n == 0)
    return next(larger, batch)


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be taken; None where the system does not tell.

    What an allocator keeps of freed tensors can be taken again, but counts as used until then: torch's blocks on a GPU
    are added to what the driver calls free, and the C library is told to give back the pages it keeps.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    release_freed()
    return _smallest([_meminfo(Path("/proc/meminfo")), _cgroup(Path("/sys/fs/cgroup"))])


def release_freed() -> None:
    """Give memory that was freed, but is kept by the C library, back to the system; does nothing without glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def weights_on(device: torch.device, models: Iterable[Segmenter | None]) -> int:
    """Bytes of the networks' weights that are on `device` already, and so no longer count as free there."""
    networks = (model for model in models if model is not None)
    return _bytes(p for model in networks for p in model.parameters() if p.device.type == device.type)


def _meminfo(path: Path) -> int | None:
    if not path.exists():
        return None
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _cgroup(folder: Path) -> int | None:
    """What a container may still take; cached files that nobody has looked at for long count as free."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    stat = folder / "memory.stat"
    fields = dict(line.split() for line in stat.read_text().splitlines()) if stat.exists() else {}
    return int(limit) - int(used) + int(fields.get("inactive_file", 0)) if limit.isdigit() else None


def _smallest(values: Sequence[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
