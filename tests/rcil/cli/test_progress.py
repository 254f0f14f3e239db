import re
import sys
from pathlib import Path

from rcil.cli.progress import Pace, progress
from rcil.cli.tables import print_estimate, print_results
from rcil.training.estimate import StepEstimate, duration
from rcil.training.loop import Event


def test_durations():
    assert [duration(s) for s in (12.4, 200, 7500)] == ["12 s", "3 min 20 s", "2 h 05 min"]


def test_pace_counts_what_this_process_did():
    now = [100.0]
    pace = Pace(clock=lambda: now[0])
    pace.follow(Event(1, 2, 4, 3, 10, {"ce": 1.0}, images=8))  # resumed: 23 of 40 iterations are done
    assert pace.text == ""
    now[0] += 4
    pace.follow(Event(1, 2, 4, 5, 10, {"ce": 1.0}, images=16))
    assert pace.text == "4.0 images/s, 30 s left"
    pace.follow(Event(2, 0, 4, 1, 10, {"ce": 1.0}, images=8))
    assert pace.text == "", "another step starts anew"
    now[0] += 1
    pace.follow(Event(2, 0, 4, 1, 10, {"ce": 1.0}, images=8))
    assert pace.text == "", "the next run has come as far"
    pace.follow(Event(2, 0, 4, 3, 10, {"ce": 1.0}, images=8))
    pace.follow(Event(2, 0, 4, 1, 10, {"ce": 1.0}, images=8))
    assert (pace.first, pace.images) == (1, 0), "the next run starts anew"


def test_an_epoch_is_a_line_where_there_is_no_terminal(capsys):
    with progress() as listen:
        listen(Event(0, 0, 2, 1, 1, {"ce": 1.0}, images=8))
        listen(Event(0, 0, 2, 1, 1, {}, miou=0.421))
        listen(Event(0, 1, 2, 1, 1, {}, finished=True))
    validated, finished = capsys.readouterr().out.splitlines()
    assert validated == "step 0, epoch 1/2: held-out mIoU 42.1 %"
    assert finished.startswith("step 0, epoch 2/2") and "mIoU" not in finished


def test_a_look_at_whole_images_shows_on_the_bar_and_is_no_pace(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress() as listen:
        listen(Event(1, 0, 2, 0, 5, {}, processed=(57, 200)))
    assert "0/10 processing whole images, 57 of 200" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().out)
    with progress() as listen:
        for event in (Event(1, 0, 2, 0, 5, {}, processed=(1, 2)), Event(1, 0, 2, 1, 5, {"ce": 1.0}, images=8)):
            listen(event)
    assert "images/s" not in capsys.readouterr().out, "one iteration is no pace, whatever was looked at before"


def test_names_are_no_markup(capsys):
    """A class may be called `[empty]`, and a closing bracket of nothing must not raise."""
    names = ("bin [empty]", "x [/empty]")
    print_estimate([StepEstimate(0, names, images=1, iterations=1, memory=1, seconds=1.0)])
    results = {"step": 0, "teaches": list(names), "miou": {"old": None, "new": 0.5, "all": 0.5}}
    print_results({"task": "t [/b]", "method": "mib", "steps": [results]}, Path("[/run]"))
    out = capsys.readouterr().out
    assert out.count("bin [empty], x [/empty]") == 2
    assert "t [/b], mib: mIoU" in out and "results.json in [/run]" in out
