"""Files decoded in another process: the same frames, sound and errors, and a crash ends the source only."""

import os
import signal
import subprocess
import sys

import av
import numpy as np
import pytest
from clips import copied, make_clip, transport_stream

from rcil_serve.stream.frames import Frame, Selection, Sound, SourceError
from rcil_serve.stream.sources import open_source
from rcil_serve.stream.sources.isolated import SLOTS


def items_of(path, **options):
    source = open_source(str(path), **options)
    items = list(source)
    source.close()
    return source, items


def described(item):
    if isinstance(item, Frame):
        return item.index, item.pts, item.time
    packet = item.packet
    return item.track, packet.pts, packet.dts, packet.duration, packet.time_base, packet.is_keyframe, bytes(packet)


@pytest.mark.parametrize("kind", ["mp4", "ts"])
def test_frames_sound_and_counts_are_the_same(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "mp4":
        make_clip(path, 40, sound="aac", rotation=90)
    else:
        path.write_bytes(transport_stream(path, 10.0) + transport_stream(path, 3.0))
    selection = Selection(stride=2)
    (here, given), (there, found) = (items_of(path, selection=selection, isolated=way) for way in (False, True))
    assert [described(item) for item in found] == [described(item) for item in given]
    for a, b in zip(given, found, strict=True):
        if isinstance(a, Frame):
            np.testing.assert_array_equal(a.pixels, b.pixels)
    assert len(found) > SLOTS and any(isinstance(item, Sound) for item in found)
    assert there.counts == here.counts
    assert [track.summary for track in there.info.tracks] == [track.summary for track in here.info.tracks]
    for field in ("size", "rate", "time_base", "frames", "aspect", "name"):
        assert getattr(there.info, field) == getattr(here.info, field)


@pytest.mark.parametrize("kind", ["mp4", "ts"])
def test_outputs_are_the_same(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "mp4":
        make_clip(path, 20, sound="aac")
    else:
        transport_stream(path, 1.0)
    files = []
    for way in (False, True):
        copied(path, tmp_path / "out.mp4", isolated=way)
        with av.open(str(tmp_path / "out.mp4")) as out:
            files.append([(packet.stream_index, packet.pts, packet.dts, bytes(packet)) for packet in out.demux()])
            kinds = [(stream.codec_context.name, stream.codec_context.extradata) for stream in out.streams]
            files[-1].append(kinds)
    assert files[0] == files[1]


def test_what_cannot_be_opened_is_told_in_the_same_words(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video" * 100)
    found = []
    for way in (False, True):
        with pytest.raises(SourceError) as caught:
            open_source(str(tmp_path / "a.mp4"), isolated=way)
        found.append((caught.value.message, caught.value.hint))
    assert found[0] == found[1]


def test_a_crash_ends_the_source_and_is_told(tmp_path):
    make_clip(tmp_path / "a.mp4", 200)
    source = open_source(str(tmp_path / "a.mp4"), isolated=True)
    items = iter(source)
    frames = [next(items) for _ in range(5)]
    os.kill(source._process.pid, signal.SIGSEGV)
    frames += list(items)
    source.close()
    assert 5 <= len(frames) < 200 and frames[0].pixels.any(), "frames that were delivered stay valid"
    assert f"crashes the decoder (SIGSEGV) after {len(frames)} frames" in source.counts.problems[-1]


def test_a_crash_at_the_start_is_an_error(tmp_path, monkeypatch):
    from rcil_serve.stream.sources import isolated

    make_clip(tmp_path / "a.mp4", 5)
    monkeypatch.setattr(isolated, "_CHILD", "import os; os.abort()  # {path} {memory}")
    with pytest.raises(SourceError, match=r"a\.mp4 crashes the decoder \(SIGABRT\)"):
        open_source(str(tmp_path / "a.mp4"), isolated=True)


def test_the_process_starts_quickly_because_it_imports_little():
    """Every file that is opened waits for these imports; counted in modules, because seconds depend on the machine."""
    heavy = {"pydantic", "torch", "onnx", "onnxruntime", "fastapi"}
    code = f"import sys; from rcil_serve.stream.sources import decoder_process; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_closing_early_leaves_no_process(tmp_path):
    make_clip(tmp_path / "a.mp4", 400)
    source = open_source(str(tmp_path / "a.mp4"), isolated=True)
    frame = next(iter(source))
    source.close()
    assert source._process.returncode is not None and frame.pixels.shape == (48, 64, 3)
