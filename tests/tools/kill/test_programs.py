import os
import random
import time
from pathlib import Path

import pytest

from tools.kill.programs import Moment, Pace, choose, measure, run, touched

SLEEPER = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
Path("pid").write_text(str(child.pid))
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z"  # a child that nobody waits for is as good as gone


def test_a_kill_takes_the_children_along(here):
    (here / "sleeper.py").write_text(SLEEPER)
    ending = run(["sleeper"], here / "log", Moment(0.2, after_output=True), (here / "pid").exists)
    assert ending.killed and ending.code == -9 and ending.after_output
    pid = int((here / "pid").read_text())
    end = time.monotonic() + 120
    while not is_gone(pid):
        assert time.monotonic() < end, "the child lives"
        time.sleep(0.01)


def test_a_run_that_ends_before_its_moment_is_not_killed(here):
    (here / "quick.py").write_text("import sys\nprint('out of luck')\nsys.exit(3)")
    ending = run(["quick"], here / "log", Moment(60, after_output=False), lambda: False)
    assert not ending.killed
    assert ending.problem == "exit code 3: out of luck"
    with pytest.raises(RuntimeError, match="out of luck"):
        measure(["quick"], here / "log", lambda: False)


def test_the_first_output_is_timed(here):
    (here / "writer.py").write_text("import time\nopen('out', 'w').close()\ntime.sleep(1)")
    pace = measure(["writer"], here / "log", (here / "out").exists)
    assert 0 < pace.first <= pace.total - 0.25


def test_moments_are_spread_over_a_run_and_over_what_follows_its_first_output():
    rng = random.Random(0)
    moments = [choose(Pace(first=6, total=10), rng) for _ in range(2000)]
    early = [moment.seconds for moment in moments if not moment.after_output]
    late = [moment.seconds for moment in moments if moment.after_output]
    assert 900 < len(early) < 1100
    assert (min(early) < 0.1, 9.9 < max(early) < 10) == (True, True)
    assert (min(late) < 0.1, 3.9 < max(late) < 4) == (True, True)


def test_a_file_that_is_written_anew_is_noticed(here):
    path = here / "a"
    began = touched(path)
    assert not began()
    path.write_text("x")
    assert began()
    began = touched(path)
    assert not began()
    os.utime(path, ns=(0, 0))
    assert began()
