"""Whole runs on small clips, looked at with PyAV."""

import json
import threading

import av
import numpy as np
import pytest
from clips import BASE, contents, make_clip, picture
from served import FIXED, write_model

from rcil.core.errors import ConfigError
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.stream.sources import Selection
from rcil_serve.video.run import VideoRequest, run_video


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model.onnx", FIXED, outputs=("mask", "confidence"))


def request_of(model, source, folder, **changes):
    targets = Targets(folder / "out.mp4", folder / "masks.mkv", folder / "frames.jsonl", folder / "timeline.png")
    fields = {"targets": targets, "receipt": folder / "receipt.json", "device": "cpu", "threads": 1}
    return VideoRequest(source=str(source), model=model, **(fields | changes))


def test_times_sound_and_rotation_are_kept(model, tmp_path, threads):
    times = make_clip(tmp_path / "in.mp4", 20, sound="aac", rotation=90)
    result = run_video(request_of(model, tmp_path / "in.mp4", tmp_path))
    source, found = contents(tmp_path / "in.mp4"), contents(tmp_path / "out.mp4")
    assert len(found.times) == len(times) == 20
    np.testing.assert_allclose(found.times, [float(pts * BASE) for pts in times], atol=1e-3)
    assert found.sizes == {(64, 48)} and found.rotations == {0}
    assert found.sound == "aac"
    assert found.sound_seconds == pytest.approx(source.sound_seconds, abs=1e-3)
    np.testing.assert_allclose(contents(tmp_path / "masks.mkv").times, found.times, atol=1e-3)
    assert threading.active_count() <= threads
    assert result["status"] == "done"


def test_a_turned_picture_is_turned_back(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 2, rotation=90)
    run_video(request_of(model, tmp_path / "in.mp4", tmp_path, alpha=0.0))
    shown = contents(tmp_path / "out.mp4", pictures=True).pictures[1].astype(int)
    assert np.abs(shown - np.rot90(picture(1, 48, 64))).mean() < 6
    assert np.abs(shown - np.rot90(picture(1, 48, 64), 3)).mean() > 20


def test_masks_without_loss_records_and_receipt_agree(model, tmp_path):
    from rcil_serve.runtime.backends import open_backend
    from rcil_serve.runtime.predictor import Predictor

    make_clip(tmp_path / "in.mp4", 8, FIXED.usual[1:])
    result = run_video(request_of(model, tmp_path / "in.mp4", tmp_path))
    masks = contents(tmp_path / "masks.mkv", pictures=True, form="gray").pictures
    frames = contents(tmp_path / "in.mp4", pictures=True).pictures
    predictor = Predictor(open_backend(model, "cpu", 1))
    lines = [json.loads(line) for line in (tmp_path / "frames.jsonl").read_text().splitlines()]
    names = [c.name for c in predictor.classes]
    for frame, mask, line in zip(frames, masks, lines, strict=True):
        found = predictor.segment(frame)
        np.testing.assert_array_equal(mask, found.mask)
        assert line["confidence"] == pytest.approx(found.confidence, abs=1e-3)
        for row, name in enumerate(names):
            assert line["shares"].get(name, 0) == pytest.approx((found.mask == row).mean(), abs=1e-5)
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt == json.loads(json.dumps(result))
    assert receipt["frames"] | {"read": 8, "inferred": 8, "written": 8, "dropped": 0, "corrupt": 0} == receipt["frames"]
    assert receipt["stages"]["infer"]["count"] == 8 and receipt["stages"]["infer"]["p99_ms"] > 0
    assert set(receipt["outputs"]) == {"video", "masks", "records", "timeline"}
    assert len(receipt["source"]["sha256"]) == len(receipt["outputs"]["video"]["sha256"]) == 64
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.part*"))


def test_colours_survive_and_painting_is_on_top(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 3, (96, 128))
    run_video(request_of(model, tmp_path / "in.mp4", tmp_path, alpha=0.0))
    before, after = (contents(tmp_path / name, pictures=True).pictures for name in ("in.mp4", "out.mp4"))
    assert np.abs(before[1].astype(int) - after[1]).mean() < 4
    run_video(request_of(model, tmp_path / "in.mp4", tmp_path, alpha=1.0))
    assert np.abs(before[1].astype(int) - contents(tmp_path / "out.mp4", pictures=True).pictures[1]).mean() > 10


@pytest.mark.parametrize(
    ("selection", "kept"),
    [
        (Selection(stride=3), [0, 3, 6, 9, 12]),
        (Selection(start=0.2, end=0.4), [5, 6, 7, 8, 9]),
        (Selection(most=4), [0, 1, 2, 3]),
        (Selection(stride=2, start=0.3, most=2), [8, 10]),
    ],
)
def test_only_wanted_frames_go_through(model, tmp_path, selection, kept):
    times = make_clip(tmp_path / "in.mp4", 15, times=[512 * index for index in range(15)])
    run_video(request_of(model, tmp_path / "in.mp4", tmp_path, selection=selection))
    found = contents(tmp_path / "out.mp4").times
    wanted = [float(times[index] * BASE) - selection.start for index in kept]
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_sound_that_mp4_does_not_take_is_converted(model, tmp_path):
    make_clip(tmp_path / "in.mkv", 10, sound="pcm_s16le")
    run_video(request_of(model, tmp_path / "in.mkv", tmp_path))
    found = contents(tmp_path / "out.mp4")
    assert found.sound == "aac"
    assert found.sound_seconds == pytest.approx(contents(tmp_path / "in.mkv").sound_seconds, abs=0.1)


def test_converted_sound_begins_where_the_picture_does(model, tmp_path):
    make_clip(tmp_path / "in.mkv", times=[512 * index for index in range(50)], sound="pcm_s16le")
    run_video(request_of(model, tmp_path / "in.mkv", tmp_path, selection=Selection(start=1.0)))
    found = contents(tmp_path / "out.mp4")
    assert found.times[0] == pytest.approx(0, abs=1e-3)
    assert found.sound_seconds == pytest.approx(contents(tmp_path / "in.mkv").sound_seconds - 1.0, abs=0.1)


def test_damage_in_converted_sound_is_left_out(model, tmp_path):
    make_clip(tmp_path / "in.mkv", times=[512 * index for index in range(50)], sound="mp2")
    data = (tmp_path / "in.mkv").read_bytes()
    with av.open(str(tmp_path / "in.mkv")) as container:
        packets = [bytes(packet) for packet in container.demux(audio=0) if packet.size]
    for packet in packets[5:9]:
        data = data.replace(packet, b"U" * len(packet))
    (tmp_path / "in.mkv").write_bytes(data)
    result = run_video(request_of(model, tmp_path / "in.mkv", tmp_path))
    assert result["status"] == "done" and result["frames"]["written"] == 50
    assert contents(tmp_path / "out.mp4").sound_seconds > 1.5


def test_sound_that_nobody_knows_is_no_reason_to_stop(model, tmp_path):
    make_clip(tmp_path / "in.mkv", 10, sound="pcm_s16le")
    data = (tmp_path / "in.mkv").read_bytes()
    (tmp_path / "in.mkv").write_bytes(data.replace(b"A_PCM/INT/LIT", b"A_ZZZ/ZZZ/ZZZ"))
    result = run_video(request_of(model, tmp_path / "in.mkv", tmp_path))
    assert result["source"]["sound"] is False and contents(tmp_path / "out.mp4").sound is None


def test_odd_sizes_and_folders_of_images(model, tmp_path):
    from rcil.core.images import write_image

    for index in range(5):
        write_image(tmp_path / "shots" / f"{index:02}.png", picture(index, 33, 47))
    (tmp_path / "shots" / "03.png").write_bytes(b"broken")
    result = run_video(
        request_of(model, tmp_path / "shots", tmp_path, targets=Targets(tmp_path / "out.mp4", tmp_path / "ids"))
    )
    assert contents(tmp_path / "out.mp4").sizes == {(34, 48)}
    assert result["frames"]["corrupt"] == 1 and result["frames"]["written"] == 4
    assert sorted(path.name for path in (tmp_path / "ids").iterdir()) == ["00.png", "01.png", "02.png", "04.png"]
    np.testing.assert_allclose(contents(tmp_path / "out.mp4").times, [0, 0.1, 0.2, 0.4], atol=1e-3)


def test_batches_change_nothing(tmp_path):
    model = write_model(tmp_path / "model.onnx")
    make_clip(tmp_path / "in.mp4", 7, sound="aac")
    from rcil_serve.runtime.predictor import Layout

    found = []
    for batch in (1, 3):
        run_video(request_of(model, tmp_path / "in.mp4", tmp_path, layout=Layout(batch=batch)))
        found.append(contents(tmp_path / "masks.mkv", pictures=True, form="gray"))
    assert found[0].times == found[1].times
    for a, b in zip(found[0].pictures, found[1].pictures, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_without_outputs_is_an_error(model, tmp_path):
    with pytest.raises(ConfigError, match="no output was requested"):
        run_video(request_of(model, "in.mp4", tmp_path, targets=Targets()))


def test_sound_and_picture_that_begin_apart_stay_apart(model, tmp_path):
    times = make_clip(tmp_path / "in.mp4", times=[4000 + 512 * index for index in range(12)], sound="aac")
    run_video(request_of(model, tmp_path / "in.mp4", tmp_path))
    np.testing.assert_allclose(contents(tmp_path / "out.mp4").times, [float(pts * BASE) for pts in times], atol=1e-3)


def test_a_720p_clip_with_everything_goes_through_whole(model, tmp_path):
    times = make_clip(tmp_path / "in.mp4", 40, (720, 1280), sound="aac", rotation=180)
    result = run_video(request_of(model, tmp_path / "in.mp4", tmp_path, targets=Targets(tmp_path / "out.mp4")))
    source, found = contents(tmp_path / "in.mp4"), contents(tmp_path / "out.mp4")
    assert len(found.times) == len(source.times) == result["frames"]["written"] == len(times)
    np.testing.assert_allclose(found.times, source.times, atol=1e-3)
    assert found.sound == "aac" and found.sound_seconds == pytest.approx(source.sound_seconds, abs=1e-3)
    assert found.sizes == {(720, 1280)} and source.rotations == {180} and found.rotations == {0}
