"""Where a file cannot be written in full, every command says so, keeps what was there, and leaves nothing half-made."""

import contextlib
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMANDS, call

from tools.kill.whole import problem_of

WRITERS = {
    name: text for name, text in COMMANDS.items() if "%" in text and name not in {"rcil demo", "rcil-export engine"}
}
FOLDERS = [name for name, text in WRITERS.items() if any("%" in word and "." not in word for word in text.split())]
GROWING = (".jsonl", ".mp4")
"""What fitted of these stays, under a temporary name."""


@contextlib.contextmanager
def files_of_at_most(size):
    """A limit of the system, which makes writes fail as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def check(done, before, here):
    """A remedy in words; what is new is whole, and nothing is left under temporary names."""
    assert done.code not in (0, 130), done.out
    assert "error:" in done.err and "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) > 1, "there is no remedy"
    made = [path for path in here.rglob("*") if path.is_file() and path not in before and "tfevents" not in path.name]
    assert [path for path in made if ".part" in path.name and path.suffix not in GROWING] == []
    assert [(path, problem_of(path)) for path in made if ".part" not in path.name and problem_of(path)] == []
    assert [path for path in before if not path.exists() or path.read_bytes() != before[path]] == []


def contents(here):
    return {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_can_be_written(name, here):
    for word in WRITERS[name].split():
        if word.startswith("%") and "." in word:
            (here / word[1:]).write_text("of an earlier run")
    before = contents(here)
    with files_of_at_most(0):
        done = call(name, *(word.lstrip("@%") for word in WRITERS[name].split()))
    check(done, before, here)


@pytest.mark.parametrize("name", FOLDERS)
def test_small_files_can_be_written_and_large_ones_cannot(name, here):
    before = contents(here)
    small = ("rcil data", "rcil pick", "rcil prelabel", "rcil-export prelabel", "rcil-serve images")
    with files_of_at_most(600 if name.startswith(small) else 8000):
        done = call(name, *(word.lstrip("@%") for word in WRITERS[name].split()))
    check(done, before, here)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_standard_output_may_be_full_too(options):
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "rcil", "presets", *options]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode not in (0, 130)
    assert "error: cannot write all of the output: No space left on device\nFree some space" in done.stderr
    assert "Traceback" not in done.stderr
