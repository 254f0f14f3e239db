import errno
import json
import os

import pytest

from rcil_serve.stream.frames import OutputError
from rcil_serve.watch.events import Event, EventLog


def test_events_are_on_disk_at_once_and_go_on_where_the_last_run_ended(tmp_path):
    told = []
    for run in range(2):
        log = EventLog(tmp_path / "deep" / "events.jsonl", told.append)
        log.add(Event("raised", 1.23456, f"run {run}", {"class": "a"}))
        lines = [json.loads(line) for line in (tmp_path / "deep" / "events.jsonl").read_text().splitlines()]
        assert len(lines) == run + 1
        assert lines[-1] | {"event": "raised", "time": 1.235, "class": "a"} == lines[-1]
        assert lines[-1]["at"].endswith("+00:00")
        log.close()
    assert [event.line for event in told] == ["      1.2 s  run 0", "      1.2 s  run 1"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*events\.jsonl"):
        EventLog(tmp_path / "file" / "events.jsonl")


def test_without_a_file_events_are_only_told():
    told = []
    log = EventLog(None, told.append)
    log.add(Event("began", 0.0, "x"))
    log.close()
    assert [event.kind for event in told] == ["began"]


def test_an_event_is_written_though_nobody_can_be_told(tmp_path):
    def broken(event):
        raise BrokenPipeError

    log = EventLog(tmp_path / "e.jsonl", broken)
    with pytest.raises(BrokenPipeError):
        log.add(Event("raised", 1.0, "it burns"))
    assert json.loads((tmp_path / "e.jsonl").read_text())["event"] == "raised"
    log.close()


def test_somebody_is_told_though_nothing_can_be_written(tmp_path):
    told = []
    log = EventLog(tmp_path / "e.jsonl", told.append)
    log.close()
    log._file = Full()
    with pytest.raises(OutputError, match="No space left"):
        log.add(Event("raised", 1.0, "it burns"))
    assert [event.kind for event in told] == ["raised"]


class Full:
    """A file on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
