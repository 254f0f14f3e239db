import logging

import pytest

import rcil.cli.heartbeat
from rcil.cli.console import progress_line, stage_lines
from rcil.cli.heartbeat import Heartbeat, heartbeat
from rcil.cli.progress import progress
from rcil.core.log import listening
from rcil.training.loop import Event


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def beats(clock, monkeypatch):
    """Heartbeats of the commands, on the fake clock; a test ticks them in place of their thread."""
    made = []

    def make(status):
        made.append(Heartbeat(status, clock=clock))
        return made[-1]

    monkeypatch.setattr(rcil.cli.heartbeat, "Heartbeat", make)
    monkeypatch.setattr(rcil.cli.heartbeat.threading, "Thread", NoThread)
    return made


class NoThread:
    def __init__(self, **options):
        pass

    def start(self):
        pass

    def join(self):
        pass


def test_a_line_comes_every_half_minute_and_not_before(clock):
    lines = []
    beat = Heartbeat("checking", lines.append, clock)
    clock.now += 29
    assert beat.tick() == 1
    assert lines == []
    clock.now += 1
    beat.count("checking", 120, 400)
    assert beat.tick() == 30
    clock.now += 3600
    beat.tick()
    assert lines == ["checking: 120 of 400 (0:00:30 so far)", "checking: 120 of 400 (1:00:30 so far)"]


def test_lines_that_are_printed_anyway_count(clock):
    lines = []
    beat = Heartbeat("training", lines.append, clock)
    clock.now += 25
    beat.restart()
    clock.now += 25
    assert beat.tick() == 5
    assert lines == []


def test_the_thread_shows_lines_while_the_work_goes_on(clock):
    shown = []
    with heartbeat("work", terminal=False, make=lambda status: Heartbeat(status, shown.append, interval=0.01)):
        for _ in range(12_000):
            if len(shown) > 1:
                break
            rcil.cli.heartbeat.time.sleep(0.01)
    assert shown[:2] == ["work (0:00:00 so far)"] * 2
    before = len(shown)
    rcil.cli.heartbeat.time.sleep(0.05)
    assert len(shown) == before, "the thread has ended"


@pytest.mark.parametrize(("terminal", "level"), [(True, logging.WARNING), (False, logging.ERROR)])
def test_no_thread_on_a_terminal_or_if_quiet(terminal, level, monkeypatch):
    monkeypatch.setattr(rcil.cli.heartbeat.threading, "Thread", None)
    with listening(level), heartbeat("work", terminal=terminal):
        pass


def test_quick_work_prints_nothing(capsys):
    with progress_line("checking") as show:
        show(1, 2)
    assert capsys.readouterr() == ("", "")


def test_images_and_stages_are_counted_on_standard_error(beats, clock, capsys):
    with progress_line("checking") as show:
        show(7, 9)
        clock.now += 31
        beats[0].tick()
    with stage_lines("reading", print) as (begin, show):
        begin("engine: building")
        show(3, 4)
        clock.now += 31
        beats[1].tick()
    said = capsys.readouterr()
    assert said.out == "engine: building\n"
    assert said.err == "checking: 7 of 9 (0:00:31 so far)\nengine: building: 3 of 4 (0:00:31 so far)\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_training_says_where_it_is(beats, clock, capsys, as_json):
    with progress(quiet=as_json) as listen:
        listen(Event(1, 0, 2, 3, 10, {"ce": 0.5}, images=8))
        clock.now += 31
        beats[0].tick()
        for looked in ((5, 200), (200, 200)):
            listen(Event(1, 1, 2, 10, 10, {}, processed=looked))
            clock.now += 31
            beats[0].tick()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "step 1, iteration 3 of 20, ce 0.500 (0:00:31 so far)",
        "step 1: processing whole images, 5 of 200 (0:01:02 so far)",
        "step 1: fitting the classifier to 200 whole images (0:01:33 so far)",
    ]
