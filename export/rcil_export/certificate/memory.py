"""Peak memory of a delivered file against that of the plain network."""

from __future__ import annotations

from pathlib import Path

from rcil_export.check.memory import MemoryMeasureError, peak_memory
from rcil_export.check.result import Item

MEMORY_LIMIT = 0.1
"""Share by which its peak memory may be larger. Two runs of one and the same file differ by up to 9 %: the allocator
sometimes finds room for a buffer and sometimes asks for more."""
MEMORY_GRAIN = 4 * 2**20
"""Bytes by which any two runs may differ: the allocator asks for whole pages, and small networks have few."""
MEMORY_RUNS = 3


def memory_item(own: Path, plain: Path, shape: tuple[int, ...], threads: int) -> Item:
    """Peak memory of both in processes of their own, in turns: the smallest of as many runs as are needed to pass.

    Args:
        own: The delivered file.
        plain: The twin's graph, in the same precision.
        shape: All axes of the input.
        threads: Of ONNX Runtime.
    """
    title, required = "Peak memory over the plain network's", f"not above {1 + MEMORY_LIMIT:.2f}"

    def fits() -> bool:
        first, second = (min(values) for values in peaks.values())
        return first <= (1 + MEMORY_LIMIT) * second + MEMORY_GRAIN

    peaks: dict[str, list[int]] = {"delivered": [], "plain": []}
    try:
        for _ in range(MEMORY_RUNS):
            for name, path in (("delivered", own), ("plain", plain)):
                peaks[name].append(peak_memory(path, shape, threads))
            if fits():
                break
    except MemoryMeasureError as error:
        return Item("memory", title, None, f"not measured: {error.message}", required)
    first, second = (min(values) for values in peaks.values())
    return Item(
        "memory",
        title,
        fits(),
        f"{first / second:.3f} ({first / 2**20:.1f} and {second / 2**20:.1f} MiB)",
        required,
        {"ratio": first / second, "bytes": peaks},
        kind="measured",
    )
