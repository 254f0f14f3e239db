from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rcil_serve.cli.options import StreamArgs, with_option_groups
from rcil_serve.runtime.predictor import Layout
from rcil_serve.stream.options import StreamOptions
from rcil_serve.stream.sources import Selection
from rcil_serve.stream.sources.live import LiveOptions

LINE = (
    "clip.mp4 --stride 2 --start 1 --end 9 --max-frames 3 --fps 29.97 --size 48x64 --scale 0.5 --tile 32 --overlap 8 "
    "--batch 4 --decoder cpu --timeout 5 --attempts 2 --device cpu --threads 1 --trust key.pem --last"
)


@pytest.fixture
def called():
    """Runs a command with the option group; returns its arguments."""
    app, seen = typer.Typer(), []

    @app.command()
    @with_option_groups
    def command(source: str, *, stream: StreamArgs, last: bool = False) -> None:
        seen.append((source, stream, last))

    def call(line):
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == 0, result.output
        return seen[-1]

    return call


def test_defaults_of_the_command_line_are_those_of_the_library(called):
    source, stream, last = called("clip.mp4")
    assert (source, stream, last) == ("clip.mp4", StreamArgs(), False)
    assert StreamOptions(**stream.as_fields()) == StreamOptions()


def test_every_option_of_a_group_arrives(called):
    source, stream, last = called(LINE)
    assert source == "clip.mp4" and last
    same = [field.name for field in fields(StreamArgs) if getattr(stream, field.name) == field.default]
    assert not same, "each differs from its default"
    assert StreamOptions(**stream.as_fields()) == StreamOptions(
        layout=Layout((48, 64), 32, 8, 4, 0.5),
        selection=Selection(2, 1.0, 9.0, 3),
        live=LiveOptions(5.0, 2),
        rate=Fraction(2997, 100),
        device="cpu",
        threads=1,
        decoder="cpu",
        trust=(Path("key.pem"),),
    )
