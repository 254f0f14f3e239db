import json

import pytest
from clips import make_clip
from served import FIXED, write_model
from typer.testing import CliRunner

from rcil.cli.console import make_app
from rcil_serve.diff.command import diff
from rcil_serve.stream.frames import SourceError


@pytest.fixture
def call(tmp_path):
    app = make_app("rcil-serve", "Test.")
    app.command()(diff)
    old, new = (str(write_model(tmp_path / f"{step}.onnx", FIXED, step)) for step in (0, 1))

    def run(source, *options):
        words = ["diff", old, new, str(source), "-o", str(tmp_path / "out"), "--threads", "1", "--device", "cpu"]
        return CliRunner().invoke(app, [*words, *options])

    return run


def test_the_command_writes_everything(call, tmp_path):
    make_clip(tmp_path / "in.mp4", 4)
    done = call(tmp_path / "in.mp4", "--view", "wipe", "--stride", "2")
    assert done.exit_code == 0, done.output
    assert "of all pixels changed" in done.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"diff.mp4", "diff.html", "diff.json", "diff.receipt.json"}
    assert all(str(tmp_path / "out" / name) in done.output for name in names)


def test_json_is_all_that_is_printed(call, tmp_path):
    make_clip(tmp_path / "in.mp4", 3)
    document = json.loads(call(tmp_path / "in.mp4", "--json", "--view", "none").stdout)
    assert document["receipt"]["status"] == "done" and document["frames"] == 3
    assert document["kinds"].keys() >= {"forgotten", "learned"}


def test_a_damaged_source_is_compared_as_far_as_it_goes_and_is_an_error(call, tmp_path):
    make_clip(tmp_path / "in.mp4", 40, options={"movflags": "faststart"})
    data = (tmp_path / "in.mp4").read_bytes()
    (tmp_path / "in.mp4").write_bytes(data[: len(data) * 2 // 3])
    done = call(tmp_path / "in.mp4", "--view", "none")
    document = json.loads((tmp_path / "out" / "diff.json").read_text())
    assert 0 < document["frames"] < 40
    assert isinstance(done.exception, SourceError) and "All readable frames were compared" in done.exception.hint
