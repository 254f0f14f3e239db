"""Whole runs of the command on small clips."""

import base64
import http.server
import json
import re
import threading
import urllib.request
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pytest
import typer
from clips import contents, make_clip
from served import write_model
from typer.testing import CliRunner

from rcil.core.errors import CheckpointError, ConfigError
from rcil.core.files import sha256_of
from rcil_serve.live.server import ViewOptions
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.onnx_backend import OnnxBackend
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.sources import Selection
from rcil_serve.watch.alarms import AlarmError
from rcil_serve.watch.command import watch
from rcil_serve.watch.rules import parse_rule
from rcil_serve.watch.run import WatchRequest, run_watch

app = typer.Typer()
app.command()(watch)
FRAMES = 20


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A clip, three steps of a model, and step 1 again with more outputs: the same masks from another file."""
    folder = tmp_path_factory.mktemp("site")
    make_clip(folder / "yard.mp4", FRAMES, times=[512 * index for index in range(FRAMES)], sound="aac")
    for step in range(3):
        write_model(folder / f"step{step}.onnx", step=step)
    write_model(folder / "again.onnx", step=1, outputs=("mask", "confidence"))
    return folder


@pytest.fixture
def run(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, model="step1", source="yard.mp4"):
        fixed = [str(site / source), "--model", str(site / f"{model}.onnx"), "--device", "cpu", "--threads", "1"]
        return CliRunner().invoke(app, [*fixed, "--receipt", "r.json", *map(str, arguments)])

    return call


def receipt(tmp_path):
    return json.loads((tmp_path / "r.json").read_text())


def masks_of(site, name):
    predictor = Predictor(open_backend(site / f"{name}.onnx", "cpu", 1))
    frames = contents(site / "yard.mp4", pictures=True).pictures
    return np.array([predictor.segment(frame).mask for frame in frames]), [c.name for c in predictor.classes]


def test_the_numbers_of_a_run_are_those_of_its_masks(site, run, tmp_path, threads):
    done = run("--previous", site / "step0.onnx", "--every", 3, "--baseline", 0.2, "--window", 10)
    assert done.exit_code == 0, done.output
    old, old_names = masks_of(site, "step0")
    new, new_names = masks_of(site, "step1")
    assert new_names == [*old_names, "new1"] and len(np.unique(new)) == 4, "the clip must show something"
    watched = receipt(tmp_path)["watch"]
    assert watched["frames"] == FRAMES and watched["compared"] == 7
    for row, name in enumerate(old_names):
        before, after = old[::3] == row, new[::3] == row
        known = ~((old[::3] == 0) & (new[::3] == 3)) if row == 0 else np.ones_like(before)
        either = ((before | after) & known).sum()
        wanted = (before & after).sum() / either if either else None
        assert watched["measures"]["agreement"][name] == (None if wanted is None else pytest.approx(wanted, abs=1e-6))
    for row, name in enumerate(new_names[1:], start=1):
        first, all_frames = (new[:5] == row).mean(), (new[:19] == row).mean()
        wanted = all_frames / first - 1 if first else None
        assert watched["measures"]["drift"][name] == (None if wanted is None else pytest.approx(wanted, abs=1e-5))
    assert set(watched["measures"]["flicker"]) == set(new_names)
    assert threading.active_count() <= threads


def test_alarms_are_lines_events_and_the_exit_code(site, run, tmp_path):
    strict = ["--previous", site / "step0.onnx", "--every", 2, "--min-agreement", 1, "--max-drift", "inf"]
    done = run(*strict, "--max-flicker", "inf", "--patience", 2, "--events", "e.jsonl", "--timeline", "t.png")
    assert done.exit_code == 0, done.output
    events = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["began", "ended"]
    assert events[0]["old_classes"] == ["background", "a", "b"]
    raised = [event for event in events if event["event"] == "raised"]
    assert raised and all(event["measure"] == "agreement" and event["value"] < 1 for event in raised)
    lines = done.output.splitlines()
    assert len(lines) == len(events)
    assert re.fullmatch(r" +0\.1 s  ALARM   agreement of \w+ is 0\.\d{3}, should be at least 1\.000", lines[1])
    found = receipt(tmp_path)
    assert found["status"] == "done"
    assert {alarm["class"] for alarm in found["watch"]["raised_alarms"]} == {event["class"] for event in raised}
    assert set(found["outputs"]) == {"events", "timeline"} and found["options"]["max_drift"] is None
    assert found["options"]["threads"] == 1 and found["options"]["selection"]["stride"] == 1
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    failed = run(*strict, "--max-flicker", "inf", "--patience", 2, "--fail-on-alarm")
    assert isinstance(failed.exception, AlarmError) and failed.exception.exit_code == 9
    assert "agreement of" in failed.exception.message


def test_a_model_agrees_with_itself_and_nothing_is_raised(site, run, tmp_path):
    done = run(
        "--previous", site / "again.onnx", "--every", 2, "--min-agreement", 1, "--max-flicker", "inf", "--fail-on-alarm"
    )
    assert done.exit_code == 0, done.output
    agreement = receipt(tmp_path)["watch"]["measures"]["agreement"]
    assert set(agreement.values()) <= {1.0, None} and 1.0 in agreement.values()
    assert receipt(tmp_path)["watch"]["raised_alarms"] == []


def test_a_new_step_takes_over_and_the_link_follows(site, run, tmp_path):
    link = tmp_path / "live.onnx"
    link.symlink_to(site / "step1.onnx")
    shadow = ["--shadow", site / "again.onnx", "--promote-link", link, "--promote-agreement", 1, "--every", 2]
    assert run(*shadow, "--promote-after", 11).exit_code == 0
    assert link.resolve() == (site / "step1.onnx").resolve(), "ten frames are compared"
    done = run(*shadow, "--promote-after", 10, "--json", "--timeline", "t.png", "--promote-command", "cp {model} copy")
    assert done.exit_code == 0, done.output
    assert link.is_symlink() and link.resolve() == (site / "again.onnx").resolve()
    assert sha256_of(tmp_path / "copy") == sha256_of(site / "again.onnx")
    events = {event["event"]: event for event in map(json.loads, done.output.splitlines())}
    assert events["promoted"]["frames"] == 10
    assert events["promoted"]["model"]["sha256"] == sha256_of(site / "again.onnx")
    assert set(events["promoted"]["agreement"].values()) == {1.0}
    assert events["ended"]["promotions"] == 1 and events["ended"]["sha256"] == sha256_of(site / "again.onnx")


def test_a_step_that_disagrees_is_not_promoted(site, run, tmp_path):
    link = tmp_path / "live.onnx"
    link.symlink_to(site / "step1.onnx")
    shadow = ["--shadow", site / "step2.onnx", "--promote-link", link, "--every", 2, "--promote-after", 4]
    done = run(*shadow, "--promote-agreement", 1, "--events", "e.jsonl")
    assert done.exit_code == 0, done.output
    events = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] in ("refused", "promoted")] == ["refused"] * 2
    assert link.resolve() == (site / "step1.onnx").resolve()


@pytest.mark.parametrize(("content", "message"), [(b"no model", "not an ONNX file"), (None, "does not know new1")])
def test_a_shadow_that_is_no_use_is_told_and_the_rest_goes_on(site, run, tmp_path, content, message):
    shadow = site / "step0.onnx"
    if content is not None:
        shadow = tmp_path / "broken.onnx"
        shadow.write_bytes(content)
    done = run("--shadow", shadow, "--previous", site / "step0.onnx", "--events", "e.jsonl")
    assert done.exit_code == 0, done.output
    first, *_ = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert first["event"] == "shadow_failed" and message in first["error"]
    assert receipt(tmp_path)["watch"]["frames"] == FRAMES


def test_a_baseline_of_one_run_serves_the_next(site, run, tmp_path):
    assert run("--save-baseline", "b.json", "--baseline", 100).exit_code == 0
    saved = json.loads((tmp_path / "b.json").read_text())
    new, names = masks_of(site, "step1")
    assert saved["frames"] == FRAMES
    assert saved["shares"] == {name: pytest.approx((new == row).mean()) for row, name in enumerate(names)}
    assert run("--baseline-from", "b.json", "--window", 100, "--every", FRAMES - 1).exit_code == 0
    drift = receipt(tmp_path)["watch"]["measures"]["drift"]
    seen = [name for row, name in enumerate(names) if row and (new == row).any()]
    assert {name for name, value in drift.items() if value is not None} == set(seen)
    assert all(drift[name] == pytest.approx(0, abs=1e-5) for name in seen)


def test_metrics_are_served_while_it_runs(site, tmp_path, threads):
    address, found = [], {}

    def on_event(event):
        if event.kind == "ended":
            with urllib.request.urlopen(address[0], timeout=10) as answer:
                found.update(re.findall(r"^(rcil_watch_\w+) (\S+)$", answer.read().decode(), re.MULTILINE))

    request = WatchRequest(
        source=str(site / "yard.mp4"),
        model=site / "step1.onnx",
        receipt=tmp_path / "r.json",
        metrics_port=0,
        selection=Selection(most=7),
        device="cpu",
        threads=1,
    )
    run_watch(request, on_event, address.append)
    assert float(found["rcil_watch_frames_total"]) == 7 and float(found["rcil_watch_model_step"]) == 1
    assert threading.active_count() <= threads


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["--promote-command", "true"], ConfigError, "no model to promote"),
        (["--shadow", "none.onnx"], ConfigError, r"none\.onnx does not exist"),
        (["--previous", "none.onnx"], CheckpointError, "No such file"),
        (["--baseline-from", "none.json"], CheckpointError, r"cannot read none\.json"),
        (["--max-drift", "0"], ConfigError, "must be positive"),
        (["--window", "0"], ConfigError, "the window is 0 s long"),
        (["--start", "100"], SourceError, "delivered no frames"),
    ],
)
def test_requests_that_cannot_be_met(run, arguments, kind, message):
    done = run(*arguments)
    assert isinstance(done.exception, kind), done.exception
    assert re.search(message, done.exception.message) and done.exception.hint


def test_a_damaged_clip_is_an_error_after_what_is_there_was_measured(run, tmp_path):
    make_clip(tmp_path / "cut.mp4", 60, options={"movflags": "faststart"})
    whole = (tmp_path / "cut.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) * 2 // 3])
    done = run(source=tmp_path / "cut.mp4")
    assert isinstance(done.exception, SourceError) and "r.json" in done.exception.hint
    assert 10 < receipt(tmp_path)["watch"]["frames"] < 60


@pytest.mark.parametrize("last", ["began", "ended"])
def test_a_reader_that_goes_away_ends_the_run_and_the_receipt_says_so(site, tmp_path, last):
    def on_event(event):
        if event.kind == last:
            raise BrokenPipeError(32, "Broken pipe")

    request = WatchRequest(
        source=str(site / "yard.mp4"),
        model=site / "step1.onnx",
        receipt=tmp_path / "r.json",
        events=tmp_path / "e.jsonl",
        device="cpu",
        threads=1,
    )
    with pytest.raises(BrokenPipeError):
        run_watch(request, on_event)
    events = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert events[0]["event"] == "began" and events[-1] == events[-1] | {"event": "ended", "status": "failed"}
    assert receipt(tmp_path)["status"] == "failed"


def test_a_shadow_that_is_no_use_is_closed(site, tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(OnnxBackend, "close", lambda backend: closed.append(Path(backend.name).name))
    request = WatchRequest(
        source=str(site / "yard.mp4"),
        model=site / "step1.onnx",
        shadow=site / "step0.onnx",
        receipt=tmp_path / "r.json",
        device="cpu",
        threads=1,
    )
    run_watch(request, lambda event: event.kind == "began" and closed.append("began"))
    assert closed[:2] == ["step0.onnx", "began"]


def test_a_plot_does_not_replace_the_model(run, site):
    done = run("--timeline", site / "step1.onnx")
    assert isinstance(done.exception, ConfigError) and "would overwrite" in done.exception.message


class Hook(http.server.BaseHTTPRequestHandler):
    """Notes what is posted to it."""

    posts: ClassVar = []

    def do_POST(self):
        self.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_rule_is_posted_with_a_picture(site, run, tmp_path):
    new, names = masks_of(site, "step1")
    row = int(np.argmax([(new == row).mean() for row in range(1, len(names))])) + 1
    Hook.posts.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        limit = 100 * float((new == row).mean((1, 2)).min()) - 1
        sentence = f"{names[row]} covers more than {limit:.2f} % of the picture for 0.2 s"
        address = f"http://127.0.0.1:{server.server_port}/s3cret"
        done = run("--rule", sentence, "--webhook", address, "--max-flicker", "inf", "--zone", "z=0,0 1,0 1,1")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert done.exit_code == 0, done.output
    assert [post["event"] for post in Hook.posts] == ["began", "raised", "ended"]
    raised = Hook.posts[1]
    assert (raised["time"], raised["class"], raised["zone"]) == (0.2, names[row], "the picture")
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(raised["snapshot"]), np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape[:2] == new.shape[1:]
    found = receipt(tmp_path)
    assert found["options"]["rules"] == [raised["rule"]] and list(found["options"]["zones"]) == ["z"]
    assert found["options"]["webhook"] == address.removesuffix("/s3cret")
    assert "s3cret" not in done.output + (tmp_path / "r.json").read_text()
    assert found["watch"]["raised_alarms"] == [{"measure": "coverage", "class": raised["rule"], "count": 1}]
    assert list((tmp_path / "r.outbox").iterdir()) == []


def test_rules_about_classes_that_the_model_lacks(run):
    done = run("--rule", "lorry covers more than 5 % of the picture")
    assert isinstance(done.exception, ConfigError) and "no class 'lorry'" in done.exception.message


def test_the_live_view_of_a_watch_shows_its_alarms(site, tmp_path, threads):
    found, told = {}, []

    def on_event(event):
        if event.kind == "ended":
            address = told[0].removeprefix("live view: ")
            for path in ("/state", "/frame.jpg"):
                with urllib.request.urlopen(address + path, timeout=10) as answer:
                    found[path] = answer.read()

    request = WatchRequest(
        source=str(site / "yard.mp4"),
        model=site / "step1.onnx",
        receipt=tmp_path / "r.json",
        rules=(parse_rule("background covers more than 0 % of the picture", ()),),
        view=ViewOptions(port=0),
        device="cpu",
        threads=1,
    )
    run_watch(request, on_event, notify=told.append)
    state = json.loads(found["/state"])
    assert state["frame"] == FRAMES and state["alarms"] == ["background covers more than 0 % of the picture"]
    kinds = [event["kind"] for event in state["events"]]
    assert (kinds[0], kinds[-2], kinds[-1]) == ("ended", "raised", "began"), "newest first"
    assert found["/frame.jpg"].startswith(b"\xff\xd8")
    assert threading.active_count() <= threads
