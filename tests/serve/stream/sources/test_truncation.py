"""Files that end early, and whole files that announce more frames than they have."""

import av
import pytest
from clips import copied, make_clip, picture

from rcil_serve.stream.sources.truncation import missing_bytes


def avi(path, frames=30):
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        for index in range(frames):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")))
        out.mux(stream.encode(None))


def announce(path, frames):
    """Let the headers of an AVI file state another number of frames."""
    data = bytearray(path.read_bytes())
    for name, offset in ((b"avih", 24), (b"strh", 40)):
        at = data.find(name) + offset
        assert int.from_bytes(data[at : at + 4], "little") == 30
        data[at : at + 4] = frames.to_bytes(4, "little")
    path.write_bytes(bytes(data))


def test_a_wrong_announcement_is_no_truncation(tmp_path):
    avi(tmp_path / "a.avi")
    announce(tmp_path / "a.avi", 35)
    source = copied(tmp_path / "a.avi", tmp_path / "out.mp4")
    assert source.counts.read == 30 and not source.counts.problems
    assert source.counts.notices == [f"{tmp_path}/a.avi announces 35 frames and has 30; the file is complete"]


def test_whole_files_lack_nothing(tmp_path):
    avi(tmp_path / "a.avi")
    make_clip(tmp_path / "a.mp4", sound="aac")
    make_clip(tmp_path / "b.mp4", options={"movflags": "frag_keyframe+empty_moov"})
    make_clip(tmp_path / "a.mkv")
    make_clip(tmp_path / "a.ts")
    for name in ("a.avi", "a.mp4", "b.mp4", "a.mkv", "a.ts"):
        assert missing_bytes(tmp_path / name) == 0, name
        source = copied(tmp_path / name, tmp_path / "out.mp4")
        assert not source.counts.problems and not source.counts.notices, name


@pytest.mark.parametrize("name", ["a.avi", "a.mp4", "b.mp4", "a.mkv"])
def test_what_is_cut_off_is_told(tmp_path, name):
    if name == "a.avi":
        avi(tmp_path / name)
    else:
        movflags = {"a.mp4": "faststart", "b.mp4": "frag_keyframe+empty_moov"}
        make_clip(tmp_path / name, 60, options={"movflags": movflags[name]} if name in movflags else None)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) * 3 // 4])
    assert missing_bytes(tmp_path / name) > 0
    source = copied(tmp_path / name, tmp_path / "out.mp4")
    assert source.counts.read and any("truncated" in text for text in source.counts.problems)
