"""The resident memory of this process, as Linux counts it; elsewhere it is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""What `clear_refs` takes for: the peak starts again at the present size."""


def resident_bytes(field: Literal["VmRSS", "VmHWM"]) -> int:
    """The present size (`VmRSS`) or the peak (`VmHWM`), in bytes; the file has KiB. Raises OSError without /proc."""
    line = next(line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def take_peak() -> int | None:
    """The peak since the last call, in bytes; None where the system does not tell or does not let it start again.

    `ru_maxrss` of `getrusage` starts again with it.
    """
    try:
        peak = resident_bytes("VmHWM")
        CLEAR_REFS.write_text(RESET_PEAK, encoding="ascii")
    except OSError:
        return None
    return peak
