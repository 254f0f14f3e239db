import json
import shutil
from collections import namedtuple
from datetime import UTC, datetime

import av
import numpy as np
import pytest
from clips import contents, make_clip
from servers import ANY_SIZE, write_model

from rcil.core.errors import ConfigError
from rcil_serve.stream.outputs import segments
from rcil_serve.stream.outputs.growing_file import part_of
from rcil_serve.stream.outputs.segments import Archive, Recording, parse_bytes, parse_duration, parse_recording
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.video.run import VideoRequest, run_video

FRAMES = 60
STAMPS = ["20260131T120000Z", "20260131T121000Z", "20260131T122000Z"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A model, and a clip of 2.4 seconds with sound."""
    folder = tmp_path_factory.mktemp("site")
    write_model(folder / "m.onnx", 1, ANY_SIZE)
    make_clip(folder / "yard.mp4", FRAMES, times=[512 * index for index in range(FRAMES)], sound="aac")
    return folder


@pytest.fixture
def record(site, tmp_path):
    def call(seconds=1.0, keep=None, **more):
        targets = Targets(tmp_path / "rec" / "gate.mp4", more.pop("masks", None), tmp_path / "rec" / "gate.jsonl")
        request = VideoRequest(
            source=str(site / "yard.mp4"),
            model=site / "m.onnx",
            targets=targets,
            receipt=tmp_path / "r.json",
            recording=None if seconds is None else Recording(seconds, keep),
            device="cpu",
            threads=1,
            **more,
        )
        return run_video(request), sorted((tmp_path / "rec").iterdir())

    return call


def lines_of(path):
    return path.read_text().splitlines()


def sound_of(path):
    """Times of the audio packets in seconds, and their content."""
    with av.open(str(path)) as container:
        found = [packet for packet in container.demux(audio=0) if packet.size]
        return [float(packet.pts * packet.time_base) for packet in found], [bytes(packet) for packet in found]


def test_every_file_is_whole_and_nothing_is_lost_between_them(site, record):
    document, files = record()
    videos = [path for path in files if path.suffix == ".mp4"]
    assert len(videos) == 3 and not [path for path in files if ".part" in path.name]
    whole = contents(site / "yard.mp4", pictures=True)
    found = [contents(path, pictures=True) for path in videos]
    assert [len(one.pictures) for one in found] == [25, 25, 10]
    for number, one in enumerate(found):
        np.testing.assert_allclose(np.array(one.times) + number, whole.times[25 * number :][:25], atol=1e-3)
    sounds = [sound_of(path) for path in videos]
    record(None)
    one = files[0].with_name("gate.mp4")
    assert [content for _, packets in sounds for content in packets] == sound_of(one)[1], "as in a single file"
    for times, _ in sounds[1:]:
        assert 0 <= times[0] < 0.05, "the sound starts with the picture"
    assert document["segments"]["closed"] == 3 and document["segments"]["deleted"] == 0
    assert set(document["segments"]["last"]) == {str(path) for path in files}
    lines = [json.loads(line)["frame"] for path in files if path.suffix == ".jsonl" for line in lines_of(path)]
    assert lines == list(range(FRAMES))


def test_the_oldest_files_make_room(record, tmp_path):
    _, files = record()
    total = sum(path.stat().st_size for path in files)
    other = tmp_path / "rec" / "gatehouse-20200101T000000Z.mp4"
    other.write_bytes(bytes(10**6))
    document, left = record(keep=int(0.8 * total))
    mine = [path for path in left if path != other]
    assert other.exists(), "files of other recordings are never touched"
    assert mine and sum(path.stat().st_size for path in mine) <= 0.8 * total
    assert document["segments"]["deleted"] >= 4
    assert not set(mine) & set(files), "the older run went first"
    assert {path.stem for path in mine if path.suffix == ".mp4"} == {
        path.stem for path in mine if path.suffix == ".jsonl"
    }


def test_what_a_killed_process_left_is_completed(record, tmp_path, caplog):
    _, files = record(9.0)
    video, lines = (next(path for path in files if path.suffix == suffix) for suffix in (".mp4", ".jsonl"))
    folder = tmp_path / "rec"
    left = folder / f"gate-{STAMPS[0]}.mp4"
    content = video.read_bytes()
    part_of(left).write_bytes(content[: len(content) * 3 // 4])
    part_of(left.with_suffix(".jsonl")).write_bytes(lines.read_bytes()[:-20])
    part_of(folder / f"gate-{STAMPS[1]}.mp4").write_bytes(content[:1500])
    record(9.0)
    assert "was left by a run that was killed" in caplog.text
    assert len(contents(left, pictures=True).pictures) > 0
    assert all(json.loads(line) for line in lines_of(left.with_suffix(".jsonl")))
    assert not [path for path in folder.iterdir() if ".part" in path.name or STAMPS[1] in path.name]


def test_names_state_the_start_and_are_never_used_twice(tmp_path):
    archive = Archive(Targets(tmp_path / "gate.mp4", records=tmp_path / "gate.jsonl"), None)
    moment = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
    first = archive.at(moment)
    assert first == Targets(tmp_path / f"gate-{STAMPS[0]}.mp4", records=tmp_path / f"gate-{STAMPS[0]}.jsonl")
    part_of(first.records).touch()
    assert archive.at(moment).video.name == "gate-20260131T120001Z.mp4"


def test_newer_files_have_later_names(tmp_path):
    """Also if an older name is free again, because its files were deleted."""
    archive = Archive(Targets(tmp_path / "gate.mp4"), None)
    (tmp_path / f"gate-{STAMPS[1]}.mp4").touch()
    part_of(tmp_path / f"gate-{STAMPS[2]}.mp4").touch()
    assert archive.at(datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)).video.name == "gate-20260131T122001Z.mp4"
    assert archive.at(datetime(2026, 2, 1, tzinfo=UTC)).video.name == "gate-20260201T000000Z.mp4"


def test_an_input_is_not_deleted(site, record, tmp_path):
    folder = tmp_path / "rec"
    folder.mkdir()
    source = folder / f"gate-{STAMPS[0]}.mp4"
    shutil.copy(site / "yard.mp4", source)
    with pytest.raises(ConfigError, match="has the name of a segment"):
        Archive(Targets(folder / "gate.mp4"), 1).check([source])


def test_a_disk_that_is_too_small(tmp_path, monkeypatch):
    monkeypatch.setattr(segments.shutil, "disk_usage", lambda path: namedtuple("U", "free")(10**9))
    (tmp_path / f"gate-{STAMPS[0]}.mp4").write_bytes(bytes(10**6))
    Archive(Targets(tmp_path / "gate.mp4"), 10**9 + 10**6).check([])
    with pytest.raises(ConfigError, match=r"--keep is 2\.0 GB, and the disk has room for 1\.0 GB"):
        Archive(Targets(tmp_path / "gate.mp4"), 2 * 10**9).check([])


def test_a_folder_of_masks_cannot_be_cut(record, tmp_path):
    with pytest.raises(ConfigError, match="folder of masks"):
        record(masks=tmp_path / "masks")


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("90", 90), ("1.5h", 5400), ("30 s", 30), ("1d", 86400)])
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("50GB", 50 * 10**9), ("500 mb", 5 * 10**8), ("1.5TiB", 3 * 2**39), ("7", 7), ("2K", 2000)]
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("segment", "keep"), [("0.5s", None), ("ten", None), ("10m", "0"), ("10m", "much"), (None, "1GB")]
)
def test_options_that_cannot_be_met(segment, keep):
    with pytest.raises(ConfigError) as caught:
        parse_recording(segment, keep)
    assert caught.value.hint
