"""The table of stages, and freed memory: kept for the process, or returned to the system."""

import subprocess
import sys

import numpy as np
import pytest

from rcil.core import log
from rcil.core.log import StageRecord, recorded_stages
from rcil_export.resources import give_back_memory, part, stages_document, stages_text

RECORDS = [StageRecord("checks", 12.34, 10.0, 3 * 2**30), StageRecord("checks / outputs", 2.0, 1.5, None)]


def test_the_table():
    assert stages_text(RECORDS).splitlines() == [
        "Where the time went    seconds  processor  peak GiB",
        "  checks                  12.3       10.0      3.00",
        "    outputs                2.0        1.5          ",
    ]


def test_the_document():
    assert stages_document(RECORDS)[1] == {
        "name": "checks / outputs",
        "seconds": 2.0,
        "processor_seconds": 1.5,
        "peak_bytes": None,
    }


def test_a_part_is_a_stage():
    with recorded_stages() as stages, part("work"):
        pass
    assert [record.name for record in stages.records] == ["work"]


@pytest.mark.skipif(not log.STATUS.exists(), reason="read from /proc")
def test_memory_goes_back():
    blocks = [np.ones(60_000, np.uint8) for _ in range(2000)]  # too small to be mapped each on its own
    fence = np.ones(60_000, np.uint8)
    full = log.resident_bytes("VmRSS")
    del blocks
    give_back_memory()
    assert log.resident_bytes("VmRSS") < full - 50 * 2**20
    assert fence.all()


PROGRAM = """
import ctypes, resource, sys
from rcil_export.resources import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(20):
    block = libc.malloc(2**26)
    ctypes.memset(block, 1, 2**26)
    libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_blocks_are_used_again():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "not")
    )
    assert kept < given_back / 3
