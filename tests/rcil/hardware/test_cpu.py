import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rcil.hardware import cpu

BLOCKS = """
import ctypes, resource, sys
from rcil.hardware.cpu import keep_freed_memory
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
COMMAND = """
import sys
import {package}.cli.app as command
assert "torch" not in sys.modules, "too late: OpenMP has read the environment"
command.run = lambda app: __import__("torch")
command.main()
"""


def run(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in (cpu.POLICY, *cpu.WAITING)}
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, **variables},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_blocks_are_used_again():
    kept, given_back = (int(run(BLOCKS, how).stdout) for how in ("keep", "not"))
    assert kept < given_back / 3


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_what_the_c_library_keeps_is_given_back():
    """Freed blocks below one that is in use stay with the process until they are asked for."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    blocks = [torch.ones(2**15) for _ in range(2**10)]  # 128 KiB each: from the heap, not from the system
    guards = [torch.ones(64) for _ in range(64)]
    full = resident()
    del blocks
    cpu.give_back_memory()
    assert full - resident() > 100 * 2**20
    assert len(guards) == 64


@pytest.mark.parametrize("name", [cpu.POLICY, *cpu.WAITING])
def test_what_the_user_set_is_kept(monkeypatch, name):
    for variable in (cpu.POLICY, *cpu.WAITING):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "7")
    cpu.limit_spinning()
    assert {v: os.environ[v] for v in (cpu.POLICY, *cpu.WAITING) if v in os.environ} == {name: "7"}


@pytest.mark.skipif("GNU" not in torch.__config__.show() and "GCC" not in torch.__config__.show(), reason="libgomp")
@pytest.mark.parametrize("package", ["rcil", "rcil_export"])
def test_openmp_starts_with_the_spin_count_of_the_command(package):
    shown = run(COMMAND.format(package=package), OMP_DISPLAY_ENV="verbose").stderr
    assert f"GOMP_SPINCOUNT = '{cpu.WAITING['GOMP_SPINCOUNT']}'" in shown


def test_an_import_changes_no_setting():
    program = f"import os, rcil; print([n for n in {[cpu.POLICY, *cpu.WAITING]} if n in os.environ])"
    assert run(program).stdout.strip() == "[]"
