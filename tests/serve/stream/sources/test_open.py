import socket
import threading
from fractions import Fraction

import numpy as np
import pytest
from clips import make_clip, picture

from rcil.core import images
from rcil.core.errors import ConfigError
from rcil.core.images import write_image
from rcil_serve.stream.frames import Frame, SourceError
from rcil_serve.stream.sources import Selection, container, open_source
from rcil_serve.stream.sources.live import LiveOptions, LiveSource
from rcil_serve.stream.sources.open import redacted


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://user:pass@cam.local:554/1?token=abc", "rtsp://***@cam.local:554/1"),
        ("http://cam.local/live.m3u8", "http://cam.local/live.m3u8"),
        ("RTSP://user:pass@cam.local/1", "RTSP://***@cam.local/1"),
        ("rtsp://user:pa/ss@cam.local/1", "rtsp://***@cam.local/1"),
        ("rtsp://user:pa?ss@cam.local/1", "rtsp://***@cam.local/1"),
        ("rtsp://user:pa#ss@cam.local/1#key=pass", "rtsp://***@cam.local/1"),
        ("rtsp://user:pa@ss@cam.local/1", "rtsp://***@cam.local/1"),
        ("rtsp://user:pa[ss@cam.local/1", "rtsp://***@cam.local/1"),
    ],
)
def test_credentials_are_never_shown(address, shown):
    assert redacted(address) == shown


@pytest.mark.parametrize("address", ["rtps://user:se*cret@cam.local/1", "ftp://user:secret@cam.local/a.mp4"])
def test_addresses_of_another_kind_are_refused_without_their_password(address):
    with pytest.raises(SourceError, match="has an unsupported scheme") as caught:
        open_source(address)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n../a.ts\n#EXT-X-ENDLIST\n"),
        ("list.mp4", "ffconcat version 1.0\nfile a.ts\n"),
    ],
)
def test_a_file_that_only_names_other_files_is_refused(tmp_path, name, text):
    make_clip(tmp_path / "a.ts")
    (tmp_path / "lists").mkdir()
    make_clip(tmp_path / "lists" / "a.ts")
    (tmp_path / "lists" / name).write_text(text)
    with pytest.raises(SourceError, match="is a playlist"):
        open_source(str(tmp_path / "lists" / name))


def test_frames_of_absurd_size_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    make_clip(tmp_path / "a.mp4", size=(48, 64))
    monkeypatch.setattr(images, "MAX_PIXELS", 48 * 64 - 1)
    with pytest.raises(SourceError, match="64 x 48 pixels"):
        open_source(str(tmp_path / "a.mp4"))


def test_a_decoder_is_told_the_limit_too(tmp_path, monkeypatch):
    """A stream may state another size after its header was read."""
    make_clip(tmp_path / "a.mp4", size=(48, 64))
    monkeypatch.setattr(container, "LIMITS", {"max_pixels": "100"})
    with pytest.raises(SourceError, match=r"a\.mp4"):
        open_source(str(tmp_path / "a.mp4"))


def shots(folder, count=4):
    for index in range(count):
        write_image(folder / f"{index}.png", picture(index, 20, 30))
    return folder


def test_folders_patterns_and_lists_are_the_same_images(tmp_path):
    shots(tmp_path / "s")
    (tmp_path / "list.txt").write_text("# what to read\ns/0.png\ns/2.png\n\n")
    for text, names in (
        (str(tmp_path / "s"), "0123"),
        (str(tmp_path / "s" / "[12].png"), "12"),
        (str(tmp_path / "list.txt"), "02"),
        (str(tmp_path / "s" / "3.png"), "3"),
    ):
        frames = list(open_source(text, rate=Fraction(5)))
        assert [frame.name[-5] for frame in frames] == list(names)
        assert [frame.time for frame in frames] == pytest.approx([index / 5 for index in range(len(names))])
    np.testing.assert_array_equal(frames[0].pixels, picture(3, 20, 30))


@pytest.mark.parametrize(("name", "words"), [("empty", "holds no images"), ("x*.png", "no image matches")])
def test_nothing_to_read_is_an_error(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=words):
        open_source(str(tmp_path / name))


@pytest.mark.parametrize("fields", [{"stride": 0}, {"start": -1.0}, {"start": 2.0, "end": 1.0}, {"most": 0}])
def test_impossible_selections_are_refused(fields):
    with pytest.raises(ConfigError):
        Selection(**fields)


def test_a_camera_that_is_not_there_is_an_error():
    with pytest.raises(SourceError, match="camera 97 cannot be opened"):
        open_source("97")


class Feed:
    """Serves the same MPEG-TS bytes to every connection, as often as told, and then closes."""

    def __init__(self, data, connections):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(data, connections))
        self._thread.start()

    def _run(self, data, connections):
        for _ in range(connections):
            client = self._server.accept()[0]
            with client:
                client.sendall(data)
        self._server.close()

    def close(self):
        self._thread.join()


def test_a_stream_that_breaks_is_taken_up_again_and_the_gap_is_noted(tmp_path, monkeypatch):
    from rcil_serve.stream.sources import live

    monkeypatch.setattr(live, "FIRST_WAIT", 0.01)
    make_clip(tmp_path / "a.ts", 30, times=[512 * index for index in range(30)])
    feed = Feed((tmp_path / "a.ts").read_bytes(), 2)
    source = LiveSource(
        f"tcp://127.0.0.1:{feed.port}", "stream", Selection(), LiveOptions(timeout=5, attempts=2), form="mpegts"
    )
    frames = []
    frames.extend(item for item in source if isinstance(item, Frame))
    assert source.counts.gone == "stream was lost: 2 attempts to reconnect failed"
    feed.close()
    source.close()
    assert source.counts.reconnects == 1 and len(source.counts.gaps) == 1
    assert source.counts.read == len(frames) > 40
    assert [frame.pts for frame in frames] == sorted({frame.pts for frame in frames})


def test_a_codec_that_nobody_knows_is_named(tmp_path):
    make_clip(tmp_path / "a.mp4")
    data = (tmp_path / "a.mp4").read_bytes()
    (tmp_path / "a.mp4").write_bytes(data.replace(b"avc1", b"zzzz"))
    with pytest.raises(SourceError, match=r"a\.mp4 uses a video codec that FFmpeg does not know"):
        open_source(str(tmp_path / "a.mp4"))


def test_names_in_a_file_that_are_no_texts_do_not_matter(tmp_path):
    make_clip(tmp_path / "a.mp4")
    data = (tmp_path / "a.mp4").read_bytes()
    (tmp_path / "a.mp4").write_bytes(data.replace(b"VideoHandler", b"Video\xcaandler"))
    source = open_source(str(tmp_path / "a.mp4"))
    assert sum(isinstance(item, Frame) for item in source) == 12
    source.close()


def test_a_list_with_a_name_that_cannot_be(tmp_path):
    write_image(tmp_path / "a.png", picture(0, 8, 8))
    (tmp_path / "list.txt").write_bytes(b"a.png\nb\0.png\n")
    source = open_source(str(tmp_path / "list.txt"))
    assert len(list(source)) == 1 and source.counts.corrupt == 1
