from dataclasses import fields
from pathlib import Path

import typer
from typer.testing import CliRunner

from rcil_serve.http import run
from rcil_serve.http.command import http
from rcil_serve.http.options import HttpOptions

app = typer.Typer()
app.command()(http)


def asked(monkeypatch, *arguments, **environment):
    """The options that a command line comes down to."""
    seen = []
    monkeypatch.setattr(run, "serve", seen.append)
    result = CliRunner().invoke(app, ["--model", "m.onnx", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_defaults(monkeypatch):
    assert asked(monkeypatch) == HttpOptions(Path("m.onnx"))
    assert not HttpOptions(Path("m.onnx")).open_to_all


def test_every_option_arrives(monkeypatch):
    wanted = HttpOptions(
        Path("m.onnx"), Path("p.onnx"), "yard", "::1", 81, "t", 3, 4, 9, 5, 6, 7.5, 0.5, "cpu", 2, (Path("k.pem"),)
    )
    line = (
        "--previous p.onnx --name yard --host ::1 --port 81 --token t --queue 3 --workers 4 --max-batch 9 "
        "--max-bytes 5 --max-pixels 6 --timeout 7.5 --scale 0.5 --device cpu --threads 2 --trust k.pem"
    )
    assert asked(monkeypatch, *line.split()) == wanted
    default = HttpOptions(Path("m.onnx"))
    same = [f.name for f in fields(HttpOptions) if getattr(wanted, f.name) == getattr(default, f.name)]
    assert same == ["model"], "each is told apart from its default"


def test_the_token_may_come_from_the_environment(monkeypatch):
    assert asked(monkeypatch, RCIL_TOKEN="hush").token == "hush"
