"""Whole comparisons of small models on small clips."""

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from clips import BASE, contents, make_clip, picture
from served import FIXED, OPEN, expected, write_model

from rcil.core.errors import ConfigError, RcilError
from rcil.core.images import write_image
from rcil_serve.diff.run import DiffRequest, run_diff
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.predictor import Layout, Predictor
from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.sources import Selection

PAINT = {"dark": "background", "red": "ball", "yellow": "cone"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return write_model(folder / "old.onnx", FIXED, 0), write_model(folder / "new.onnx", FIXED, 1)


def request_of(models, source, folder, **changes):
    fields = {"device": "cpu", "threads": 1} | changes
    return DiffRequest(Path(models[0]), Path(models[1]), str(source), folder / "out", **fields)


@pytest.fixture
def known(named, monkeypatch):
    """Puts backends in the place of model files."""

    def put(old, new):
        opened = iter((old, new))
        monkeypatch.setattr("rcil_serve.stream.options.open_backend", lambda *arguments: next(opened))

    put.named = named
    return put


def test_numbers_are_those_of_the_models(models, tmp_path, threads):
    make_clip(tmp_path / "in.mp4", 8, FIXED.usual[1:], times=[4800 * index for index in range(8)])
    result = run_diff(request_of(models, tmp_path / "in.mp4", tmp_path, view="none"))
    old, new = (Predictor(open_backend(path, "cpu", 1)) for path in models)
    names = [c.name for c in new.classes]
    assert [c.name for c in old.classes] == names[:3], "the smaller table is a part of the larger one here"
    frames = contents(tmp_path / "in.mp4", pictures=True).pictures
    matrix, forgotten = np.zeros((4, 4), np.int64), np.zeros(8)
    for index, frame in enumerate(frames):
        was, now = old.segment(frame).mask, new.segment(frame).mask
        np.add.at(matrix, (was, now), 1)
        forgotten[index] = ((was > 0) & (now == 0)).mean()
    document = json.loads((tmp_path / "out" / "diff.json").read_text())
    assert document["status"] == "done" and document["frames"] == 8
    assert document["classes"] == {"names": names, "added": [names[3]], "removed": []}
    assert document["matrix"] == matrix.tolist()
    assert document["kinds"]["forgotten"]["share"] == pytest.approx(forgotten.mean())
    assert document["kinds"]["learned"]["pixels"] == matrix[0, 3]
    assert document["kinds"]["taken"]["pixels"] == matrix[1:3, 3].sum()
    assert document["kinds"]["same"]["pixels"] == np.trace(matrix)
    assert np.count_nonzero(matrix) > 8, "the models see all classes, and differ"
    seconds = document["timeline"]["shares"]["forgotten"]  # 0, 0.375, ... 2.625
    assert seconds == pytest.approx([forgotten[:3].mean(), forgotten[3:6].mean(), forgotten[6:].mean()])
    receipt = json.loads((tmp_path / "out" / "diff.receipt.json").read_text())
    assert receipt == json.loads(json.dumps(result.document))
    assert receipt["status"] == "done" and receipt["frames"]["written"] == 8
    assert receipt["model"]["step"] == 1 and receipt["options"]["compared_with"]["step"] == 0
    assert set(receipt["outputs"]) == {"report", "numbers"} and not (tmp_path / "out" / "diff.mp4").exists()
    assert len(receipt["outputs"]["report"]["sha256"]) == 64
    assert threading.active_count() <= threads


@pytest.mark.parametrize("view", ["side", "wipe"])
def test_the_video_keeps_times_and_sound(models, tmp_path, view):
    times = make_clip(tmp_path / "in.mp4", 15, sound="aac", rotation=90)
    run_diff(request_of(models, tmp_path / "in.mp4", tmp_path, view=view, selection=Selection(start=0.2)))
    source, found = contents(tmp_path / "in.mp4"), contents(tmp_path / "out" / "diff.mp4")
    wanted = [float(pts * BASE) - 0.2 for pts in times if pts * BASE >= 0.2]
    np.testing.assert_allclose(found.times, wanted, atol=1e-3)
    assert found.sound == "aac" and found.sound_seconds == pytest.approx(source.sound_seconds - 0.2, abs=0.1)
    (size,) = found.sizes
    panel = {"side": (426, 3 * 320 + 8), "wipe": (854, 640)}[view]
    assert size == (panel[0] + {"side": 3, "wipe": 4}[view] * 26, panel[1])
    assert not list((tmp_path / "out").glob("*.part*"))


def test_models_of_other_orders_and_counts_are_matched_by_name(known, tmp_path):
    for index in range(6):
        write_image(tmp_path / "shots" / f"{index}.png", picture(40 * index, 48, 64))
    known(
        known.named(["background", "ball", "drum", "cone"], PAINT, step=0),
        known.named(["background", "road", "cone", "ball"], PAINT | {"red": "background", "dark": "road"}, sha256="1"),
    )
    result = run_diff(request_of(("a", "b"), tmp_path / "shots", tmp_path, view="none"))
    masks = np.stack([expected(picture(40 * index, 48, 64)) for index in range(6)])
    shares = dict(
        zip(("learned", "forgotten", "same"), np.bincount(masks.ravel(), minlength=3) / masks.size, strict=True)
    )
    kinds = result.found.as_document()["kinds"]
    assert {name: kinds[name]["share"] for name in shares} == pytest.approx(shares) and min(shares.values()) > 0.01
    assert result.found.removed == ["drum"] and result.found.added == ["road"]
    assert "suspected forgotten (ball)" in result.headline and "learned (road)" in result.headline


def test_batches_change_nothing(tmp_path):
    models = [write_model(tmp_path / f"{step}.onnx", OPEN, step) for step in (0, 1)]
    make_clip(tmp_path / "in.mp4", 7, sound="aac")
    found = [
        run_diff(request_of(models, tmp_path / "in.mp4", tmp_path, view="none", layout=Layout(batch=batch))).found
        for batch in (1, 3)
    ]
    np.testing.assert_array_equal(found[0].matrix, found[1].matrix)


def test_the_same_model_twice_is_said_and_done(models, tmp_path):
    said = []
    make_clip(tmp_path / "in.mp4", 3)
    result = run_diff(request_of((models[1], models[1]), tmp_path / "in.mp4", tmp_path), said.append)
    assert "warning: both models are the same file, so nothing can differ" in said
    assert result.headline == "No pixel changed."
    assert "both models are the same file" in (tmp_path / "out" / "diff.html").read_text()


def test_models_the_wrong_way_round_are_said(models, tmp_path):
    make_clip(tmp_path / "in.mp4", 2)
    result = run_diff(request_of(models[::-1], tmp_path / "in.mp4", tmp_path, view="none"))
    assert "they may be swapped" in result.warnings[0]
    assert result.found.removed == ["new1"]


@pytest.mark.parametrize("source", ["nowhere.mp4", "broken.mp4"])
def test_sources_that_cannot_be_read(models, tmp_path, source):
    (tmp_path / "broken.mp4").write_bytes(b"no video" * 100)
    with pytest.raises(SourceError, match=source):
        run_diff(request_of(models, tmp_path / source, tmp_path))
    assert not (tmp_path / "out").exists()


def test_models_without_a_common_class_are_refused(known, tmp_path):
    make_clip(tmp_path / "in.mp4", 2)
    known(
        known.named(["background", "ball", "cone"], PAINT),
        known.named(["background", "road"], dict.fromkeys(PAINT, "road")),
    )
    with pytest.raises(ConfigError, match="share no class but background"):
        run_diff(request_of(("a", "b"), tmp_path / "in.mp4", tmp_path))


def test_no_frames(models, tmp_path):
    make_clip(tmp_path / "in.mp4", 3)
    with pytest.raises(SourceError, match="delivered no frames"):
        run_diff(request_of(models, tmp_path / "in.mp4", tmp_path, selection=Selection(start=60)))
    assert json.loads((tmp_path / "out" / "diff.receipt.json").read_text())["status"] == "failed"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["diff.receipt.json"]


def test_a_page_that_cannot_be_written_is_named_and_the_video_stays(models, tmp_path):
    make_clip(tmp_path / "in.mp4", 3)
    (tmp_path / "out" / "diff.html").mkdir(parents=True)
    with pytest.raises(RcilError, match=r"cannot write .*diff\.html"):
        run_diff(request_of(models, tmp_path / "in.mp4", tmp_path))
    assert len(contents(tmp_path / "out" / "diff.mp4").times) == 3
    assert json.loads((tmp_path / "out" / "diff.receipt.json").read_text())["status"] == "failed"


def test_ctrl_c_keeps_what_was_compared(models, tmp_path):
    make_clip(tmp_path / "in.mp4", 3000)
    pressed = []

    def press(progress):
        if progress.counts.written and not pressed:
            pressed.append(progress.counts.written)
            signal.raise_signal(signal.SIGINT)

    result = run_diff(request_of(models, tmp_path / "in.mp4", tmp_path), show=press)
    written = result.document["frames"]["written"]
    assert result.document["status"] == "interrupted" and 0 < pressed[0] <= written < 3000
    assert len(contents(tmp_path / "out" / "diff.mp4").times) == written
    assert f"{written} compared; interrupted by the user" in (tmp_path / "out" / "diff.html").read_text()


def test_what_was_seen_before_an_error_is_reported(known, tmp_path, threads):
    make_clip(tmp_path / "in.mp4", 30)
    old, new = known.named(["background", "ball", "cone"], PAINT), known.named(["background", "cone", "ball"], PAINT)
    run, calls = new.run, []

    def fails_late(batch):
        calls.append(1)
        if len(calls) > 20:
            raise RcilError("the model broke")
        return run(batch)

    new.run = fails_late
    known(old, new)
    with pytest.raises(RcilError, match="the model broke"):
        run_diff(request_of(("a", "b"), tmp_path / "in.mp4", tmp_path))
    out = tmp_path / "out"
    receipt, document = (json.loads((out / name).read_text()) for name in ("diff.receipt.json", "diff.json"))
    assert receipt["status"] == document["status"] == "failed" and receipt["error"] == "the model broke"
    assert 0 < document["frames"] == receipt["frames"]["written"] <= 20
    assert "the run failed" in (out / "diff.html").read_text()
    assert (out / "diff.part.mp4").exists() and not (out / "diff.mp4").exists()
    assert threading.active_count() <= threads
