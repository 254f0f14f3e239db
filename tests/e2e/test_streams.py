"""What goes where: JSON alone on standard output, dry runs without a trace, -q and -v."""

import json
import re
import shutil

import pytest
from commands import COMMANDS, all_commands, call, words_of
from sites import make_site

SLOW = {"rcil demo", "rcil-export engine"}
DRY = [name for name, command in all_commands().items() if any("--dry-run" in p.opts for p in command.params)]
REPORTS = [name for name in COMMANDS if name not in {"rcil-serve http", *SLOW}]


def trace(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_all_of_standard_output(name, here):
    done = call(name, *words_of(name), "--json")
    assert done.code == 0, done.err
    if name == "rcil-serve watch":
        assert all("event" in json.loads(line) for line in done.out.splitlines())
    else:
        assert json.loads(done.out)


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_writes_nothing(name, here):
    before = trace(here)
    for more in ([], ["--json"]):
        done = call(name, *words_of(name), "--dry-run", *more)
        assert done.code == 0, done.err
    document = json.loads(done.out)
    assert trace(here) == before
    if name not in ("rcil train", "rcil add-class"):
        outputs = [word.lstrip("%") for word in COMMANDS[name].split() if word.startswith("%")]
        assert all(any(path.startswith(output) for path in document["writes"]) for output in outputs)
        assert document["dry_run"] is True


@pytest.mark.parametrize("name", ["rcil train", "rcil add-class", "rcil compare"])
def test_a_dry_run_leaves_a_site_without_splits_alone(name, here):
    shutil.rmtree(here / "site")
    make_site(here / "site", splits=("",), images=12)
    before = trace(here)
    done = call(name, *words_of(name), "--dry-run")
    assert done.code == 0, done.err
    assert trace(here) == before


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_finds_a_place_that_cannot_be_written(name, here):
    (here / "file").write_text("in the way")
    words = [re.sub("^%", "file/", word).lstrip("@") for word in COMMANDS[name].split()]
    done = call(name, *words, "--dry-run")
    assert done.code not in (0, 130) and "file" in done.err


def test_quiet_and_verbose(here):
    words = words_of("rcil-serve video")
    plain, quiet, verbose = (call("rcil-serve video", *words, *more) for more in ([], ["-q"], ["--verbose"]))
    assert "CPU" in plain.out and plain.err == ""
    assert "CPU" not in quiet.out and "done: 4 frames" in quiet.out and quiet.err == ""
    assert "INFO: reading model.onnx" in verbose.err
    assert re.search(r"INFO: wrote areas.png, \d+ bytes", verbose.err)


def test_notices_go_beside_json(here):
    words = words_of("rcil-serve video")
    assert "CPU" in call("rcil-serve video", *words, "--json").err
    assert call("rcil-serve video", *words, "--json", "--quiet").err == ""


def test_quiet_training(here):
    done = call("rcil train", *words_of("rcil train"), "-q")
    assert done.code == 0
    assert "mIoU on the test split" in done.out
    assert "training plan" not in done.out and "held-out" not in done.out and done.err == ""
