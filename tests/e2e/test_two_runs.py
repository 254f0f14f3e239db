"""Two processes that would write to one place: the second is refused, and the first is not disturbed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMANDS, call, words_of

HELD = {
    "rcil train": ["run"],
    "rcil compare": ["table/fine-tuning/seed0"],
    "rcil classify": ["run"],
    "rcil add-class": ["taught"],
    "rcil demo": ["demo"],
    "rcil-export export": ["deployed"],
    "rcil-serve video": ["seen.mp4", "frames.jsonl", "areas.png", "seen.receipt.json"],
    "rcil-serve images": ["seen"],
    "rcil-serve diff": ["changes"],
}
HOLD = """
import sys
from pathlib import Path
from rcil.core.files import working_in
with working_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in HELD.items() for place in places])
def test_a_place_in_use_is_refused(name, place, here):
    with subprocess.Popen([sys.executable, "-c", HOLD, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        before = {path for path in here.rglob("*") if path.is_file()}
        done = call(name, *words_of(name))
        after = {path for path in here.rglob("*") if path.is_file()}
    assert done.code == 2, done.out
    assert f"another process is working in {here / place}" in done.err
    assert "Wait until it has ended" in done.err
    assert after == before


@pytest.mark.parametrize("name", ["rcil pick", "rcil prelabel", "rcil data convert", "rcil data make-site"])
def test_a_folder_that_appears_meanwhile_stays_as_it_is(name, here, monkeypatch):
    """These build a folder beside its place: of two that end one after the other, the second finds it taken."""
    place = next(word[1:] for word in COMMANDS[name].split() if word.startswith("%"))
    chmod = os.chmod

    def taken(path, *rest, **more):
        if str(path).endswith(".part") and Path(path).is_dir():
            (here / place).mkdir(exist_ok=True)
            (here / place / "theirs").write_text("whole")
        chmod(path, *rest, **more)

    monkeypatch.setattr(os, "chmod", taken)
    done = call(name, *words_of(name))
    assert done.code not in (0, 130) and "error:" in done.err and place in done.err
    assert [path.name for path in (here / place).iterdir()] == ["theirs"]
    assert not list(here.glob(".*"))
