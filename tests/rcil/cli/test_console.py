"""What all scripts share: global options anywhere, streams, colours, errors of the system."""

import json
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rcil.cli.console import make_app, make_notifier, print_dry_run, run
from rcil.core.errors import ConfigError
from rcil.core.log import DryRun, is_quiet, log, stage


@pytest.fixture
def app():
    made = make_app("script", "A script.")

    @made.command()
    def work(words: list[str], as_json: bool = typer.Option(False, "--json")) -> None:
        with stage("work"):
            make_notifier(as_json=as_json)("a notice")
        log.warning("a warning")
        typer.echo(" ".join(words))

    @made.command()
    def read(path: Path) -> None:
        path.read_bytes()

    return made


@pytest.mark.parametrize(
    ("flags", "out", "err"),
    [
        ([], "a notice\nword\n", "WARNING: a warning\n"),
        (["--json"], "word\n", "a notice\nWARNING: a warning\n"),
        (["-q"], "word\n", ""),
        (["--quiet", "--json"], "word\n", ""),
        (["-v"], "a notice\nword\n", "INFO: work: N s\nWARNING: a warning\n"),
    ],
)
def test_levels(app, flags, out, err):
    own = [flag for flag in flags if flag != "--json"]
    for words in (["work", "word", *flags], [*own, "work", "word", *flags[len(own) :]]):
        done = CliRunner().invoke(app, words)
        assert done.stdout == out
        assert re.sub(r"\d\.\d\d s", "N s", done.stderr) == err


def test_everything_is_as_before_afterwards(app):
    CliRunner().invoke(app, ["-q", "work", "word"])
    assert not is_quiet() and log.handlers == [] and log.propagate and log.level == logging.NOTSET


def test_words_behind_two_dashes_stay(app):
    assert CliRunner().invoke(app, ["work", "--quiet", "--", "-q", "-v"]).stdout == "-q -v\n"


def test_quiet_and_verbose_exclude_each_other(app):
    assert isinstance(CliRunner().invoke(app, ["work", "word", "-q", "-v"]).exception, ConfigError)


def test_what_the_system_refuses_is_said_in_words(app, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RCIL_DEBUG", raising=False)
    monkeypatch.setattr(sys, "argv", ["script", "read", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        run(app)
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: Is a directory\n")


def test_an_error_of_no_file_is_not_explained_away(app):
    def broken() -> None:
        raise OSError("what is this")

    with pytest.raises(OSError, match="what is this"):
        run(broken)


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color(value, coloured):
    mine, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": value, "TERM": "xterm"}
    command = [sys.executable, "-m", "rcil", "info", "absent"]
    subprocess.run(command, stderr=theirs, stdout=subprocess.DEVNULL, env=environment, check=False)
    os.close(theirs)
    assert (b"\x1b[" in os.read(mine, 4096)) is coloured
    os.close(mine)


def test_a_dry_run_in_words_and_as_json(capsys):
    plan = DryRun({"a": "two"}, {"b": ""}, {"time": "1 s"})
    print_dry_run(plan, as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["would", "read", "a:", "two"], ["would", "write", "b"], ["needs", "about", "time:", "1", "s"]]
    print_dry_run(plan, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document == {"dry_run": True, "reads": {"a": "two"}, "writes": {"b": ""}, "needs": {"time": "1 s"}}
