"""Cameras whose clocks are set, servers that send nothing, and files that only look live."""

import http.server
import socket
import threading

import av
import pytest
from clips import contents, make_clip, transport_stream

from rcil_serve.stream.frames import Frame
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.sources import Selection, live, open_source
from rcil_serve.stream.sources.live import TIME_BASE, LiveOptions, LiveSource, _Times

SECOND = round(1 / TIME_BASE)


def test_times_follow_the_camera():
    times = _Times(7 * SECOND)
    assert [times.of(taken * SECOND, now * SECOND) for taken, now in ((100, 7), (101, 8), (102, 30), (103, 30))] == [
        7 * SECOND, 8 * SECOND, 9 * SECOND, 10 * SECOND
    ], "late ones keep their times"  # fmt: skip


@pytest.mark.parametrize("other", [0, 998, 90_000])
def test_a_camera_whose_clock_is_set_goes_on(other):
    times = _Times(0)
    assert times.of(1000 * SECOND, 0) == 0
    assert times.of(other * SECOND, 2 * SECOND) == 2 * SECOND
    assert times.of((other + 1) * SECOND, 3 * SECOND) == 3 * SECOND


def test_a_pause_that_the_clock_knows_of_is_no_jump():
    times = _Times(0)
    times.of(10 * SECOND, 0)
    assert times.of(70 * SECOND, 59 * SECOND) == 60 * SECOND


def test_frames_after_a_jump_have_the_time_of_day(tmp_path, monkeypatch):
    """The second part of the stream says that it was taken an hour later."""
    times = [512 * index for index in range(20)] + [12800 * 3600 + 512 * index for index in range(20)]
    make_clip(tmp_path / "a.ts", times=times)
    monkeypatch.setattr(live, "FIRST_WAIT", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=send_once, args=(server, (tmp_path / "a.ts").read_bytes())).start()
        source = LiveSource(
            f"tcp://127.0.0.1:{server.getsockname()[1]}",
            "stream",
            Selection(),
            LiveOptions(timeout=5, attempts=1),
            form="mpegts",
        )
        frames = list(source)
    source.close()
    assert len(frames) > 30 and all(isinstance(frame, Frame) for frame in frames)
    assert max(frame.time for frame in frames) < 60


def send_once(server, data):
    client = server.accept()[0]
    with client:
        client.sendall(data)
    server.close()


class Silent:
    """A stream whose first connection gives frames, and whose later ones open and give none."""

    def __init__(self, source, monkeypatch, frames):
        self.opened = 0
        connections = iter(frames)
        monkeypatch.setattr(live, "FIRST_WAIT", 0.0)
        monkeypatch.setattr(source, "_connect", self.connect)
        monkeypatch.setattr(source, "_frames_of_connection", lambda: iter(next(connections, ())))

    def connect(self):
        self.opened += 1


@pytest.fixture
def source(tmp_path):
    make_clip(tmp_path / "a.ts")
    source = LiveSource(str(tmp_path / "a.ts"), "stream", Selection(), LiveOptions(timeout=5, attempts=3))
    yield source
    source.close()


def frames_of(path):
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def test_connections_that_give_no_frame_are_failed_attempts(source, tmp_path, monkeypatch):
    frames = frames_of(tmp_path / "a.ts")
    silent = Silent(source, monkeypatch, [frames, (), (), frames, (), (), ()])
    assert len(list(source)) == 2 * len(frames)
    assert silent.opened == 6, "three without a frame are as many as are allowed, and the count began anew in between"
    assert source.counts.gone == "stream was lost: 3 attempts to reconnect failed"
    assert source.counts.reconnects == len(source.counts.gaps) == 1


def test_gaps_are_counted_and_the_last_ones_kept(source, tmp_path, monkeypatch):
    frames = frames_of(tmp_path / "a.ts")[:1]
    monkeypatch.setattr(live, "KEPT_GAPS", 2)
    Silent(source, monkeypatch, [frames] * 6)
    monkeypatch.setattr(live, "FIRST_WAIT", 0.02)
    list(source)
    assert source.counts.reconnects == 5 and len(source.counts.gaps) == 2
    assert source.counts.gap_seconds >= 5 * 0.02


@pytest.mark.parametrize("sized", [True, False])
def test_a_file_on_the_web_without_a_duration_is_no_stream(tmp_path, sized):
    """Raw H.264 states no duration; the server states its bytes, or closes when it is over."""
    make_clip(tmp_path / "a.h264", 12)
    data = (tmp_path / "a.h264").read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            if sized:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *given):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/a.h264"
            source = open_source(address, live=LiveOptions(timeout=5, attempts=1))
            assert source.info.live is not sized
            if sized:
                assert sum(isinstance(item, Frame) for item in source) == 12 and not source.counts.gone
            source.close()
        finally:
            server.shutdown()
            thread.join()


def test_live_streams_have_sound_in_sync(tmp_path, monkeypatch):
    """Two connections, each of which starts its clock anew: sound follows the picture in both."""
    monkeypatch.setattr(live, "FIRST_WAIT", 0.3)
    data = transport_stream(tmp_path / "a.ts", 100.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: [send_slowly(server.accept()[0], data) for _ in range(2)], daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        source = LiveSource(address, "stream", Selection(), LiveOptions(timeout=2, attempts=1), form="mpegts")
        movie = Movie(tmp_path / "out.mp4", source.info)
        for item in source:
            if isinstance(item, Frame):
                movie.write(item.pixels, item)
            else:
                movie.write_sound(item)
        movie.finish()
        source.close()
    assert source.counts.reconnects == 1 and [track.summary for track in source.info.tracks] == [
        "mp2 48000 Hz mono, converted to aac 48000 Hz mono"
    ]
    found = contents(tmp_path / "out.mp4")
    begun, length = source.counts.gaps[0]
    after = [time for time in found.times if time > begun + length / 2]
    assert len(found.times) > 90 and after[-1] - after[0] > 1.5
    with av.open(str(tmp_path / "out.mp4")) as out:
        heard = [float(frame.pts * frame.time_base) for frame in out.decode(out.streams.audio[0])]
    assert heard[0] == pytest.approx(found.times[0], abs=0.15)
    assert heard[-1] == pytest.approx(found.times[-1], abs=0.15)


def send_slowly(client, data):
    with client:
        for start in range(0, len(data), 4096):
            client.sendall(data[start : start + 4096])


def test_a_camera_that_is_away_is_waited_for(source, tmp_path, monkeypatch):
    frames = frames_of(tmp_path / "a.ts")
    monkeypatch.setattr(source, "_live", LiveOptions(timeout=5))
    Silent(source, monkeypatch, [frames, *[()] * 20, frames, ()])
    items = iter(source)
    assert len([next(items) for _ in range(2 * len(frames))]) == 2 * len(frames)
    assert LiveOptions().attempts == 0 and source.counts.reconnects == 1 and not source.counts.gone


def test_a_run_ends_in_time_although_the_camera_is_away(source, tmp_path, monkeypatch):
    frames = frames_of(tmp_path / "a.ts")
    monkeypatch.setattr(source, "_live", LiveOptions(timeout=5))
    monkeypatch.setattr(source, "_selection", Selection(end=0.5))
    Silent(source, monkeypatch, [frames])
    monkeypatch.setattr(live, "FIRST_WAIT", 60.0)
    assert list(source) and not source.counts.gone
