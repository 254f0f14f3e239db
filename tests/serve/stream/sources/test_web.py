"""Addresses: how often they are opened, what refusals say, and streams without timestamps."""

import http.server
import threading
import time
from contextlib import contextmanager

import cv2
import numpy as np
import pytest
from clips import copied, make_clip, picture

from rcil_serve.stream.frames import Frame, SourceError
from rcil_serve.stream.sources import Selection, open_source
from rcil_serve.stream.sources.live import LiveOptions


@contextmanager
def served(answer):
    """A web server on this machine; yields its address and the list of requests."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            try:
                answer(self)
            except OSError:  # the client has what it wants
                self.close_connection = True

        def log_message(self, *given):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()


def send_file(handler, data, *, sized=True):
    handler.send_response(200)
    if sized:
        handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@pytest.mark.parametrize("sized", [True, False])
def test_an_address_is_opened_once(tmp_path, sized):
    make_clip(tmp_path / "a.ts", 20)
    data = (tmp_path / "a.ts").read_bytes()
    with served(lambda handler: send_file(handler, data, sized=sized)) as (address, requests):
        source = open_source(f"{address}/a.ts", Selection(most=20), live=LiveOptions(timeout=5, attempts=1))
        items = iter(source)
        frames = [next(items) for _ in range(20)]
        source.close()
    assert source.info.live is not sized and len(requests) == 1
    assert [frame.index for frame in frames] == list(range(20)), "frames that were read to learn the size are not lost"


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        (401, "asks for a user name and a password", r"http://user:password@host/path"),
        (403, "refuses access", "user:password"),
        (404, "does not know this path", "Check the path"),
        (429, "too many requests", "Try again later"),
        (500, "reports an error of its own", "Try again later"),
    ],
)
def test_a_refusal_is_explained(code, words, hint):
    with served(lambda handler: handler.send_error(code)) as (address, _):
        secret = address.replace("http://", "http://me:s3cret%40@")
        with pytest.raises(SourceError, match=words) as caught:
            open_source(f"{secret}/a.mp4", live=LiveOptions(timeout=5))
    assert hint in caught.value.hint and "MP4" not in caught.value.hint
    assert "s3cret" not in caught.value.message


def test_a_closed_port_is_explained():
    with pytest.raises(SourceError, match="nothing listens") as caught:
        open_source("http://127.0.0.1:9/a.mp4", live=LiveOptions(timeout=5))
    assert "port" in caught.value.hint


def test_a_camera_that_sends_single_pictures_keeps_its_pace():
    """Multipart JPEG has no timestamps, and FFmpeg assumes 25 fps; this camera has 10 fps and pauses once."""
    jpeg = cv2.imencode(".jpg", picture(0, 48, 64))[1].tobytes()
    pauses = [0.1] * 8 + [0.5] + [0.1] * 6
    sent = []

    def send(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "multipart/x-mixed-replace; boundary=--frame")
        handler.end_headers()
        for pause in (*pauses, 0.1):
            sent.append(time.monotonic())  # a busy machine is late
            handler.wfile.write(
                b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg) + jpeg + b"\r\n"
            )
            time.sleep(pause)

    with served(send) as (address, requests):
        source = open_source(f"{address}/video", Selection(most=16), live=LiveOptions(timeout=5, attempts=1))
        items = iter(source)
        frames = [next(items) for _ in range(15)]
        source.close()
    times = np.array([frame.time for frame in frames])
    assert len(requests) == 1 and all(isinstance(frame, Frame) for frame in frames)
    assert source.info.summary == "64x48, times of arrival", "FFmpeg's 25 fps are invented"
    assert times[-1] - times[0] == pytest.approx(sent[14] - sent[0], abs=0.3)
    assert np.diff(times).argmax() in (8, 9) and np.diff(times).max() > 0.35


def test_a_file_on_the_web_has_its_sound(tmp_path):
    make_clip(tmp_path / "a.mp4", 20, sound="aac", options={"movflags": "faststart"})
    data = (tmp_path / "a.mp4").read_bytes()
    with served(lambda handler: send_file(handler, data)) as (address, _):
        source = copied(f"{address}/a.mp4", tmp_path / "out.mp4")
    assert source.counts.read == 20 and source.info.tracks[0].summary.startswith("aac")


def test_a_file_on_the_web_that_has_to_be_read_out_of_order_says_so(tmp_path):
    """The index of this file is at its end, and the server can send it only from the start."""
    make_clip(tmp_path / "a.mp4", 300, (240, 320))
    data = (tmp_path / "a.mp4").read_bytes()
    assert len(data) > 200_000, "FFmpeg reads shorter ones twice"
    with served(lambda handler: send_file(handler, data)) as (address, _), pytest.raises(SourceError) as caught:
        open_source(f"{address}/a.mp4", live=LiveOptions(timeout=5))
    assert "Download" in caught.value.hint


def test_only_the_best_variant_of_a_playlist_is_read(tmp_path):
    """Each variant repeats the sound, and fetching all of them takes the sum of their bandwidths."""
    for name, size in (("small", (24, 32)), ("large", (48, 64)), ("medium", (36, 48))):
        options = {"hls_list_size": "0", "hls_segment_filename": str(tmp_path / f"{name}%d.ts")}
        make_clip(tmp_path / f"{name}.m3u8", 300, size, sound="aac", options=options)
    rates = {"small": 1000, "large": 9000, "medium": 5000}
    lines = [f"#EXT-X-STREAM-INF:BANDWIDTH={rate}\n{name}.m3u8" for name, rate in rates.items()]
    (tmp_path / "all.m3u8").write_text("\n".join(["#EXTM3U", *lines]))
    with served(lambda handler: send_file(handler, (tmp_path / handler.path[1:]).read_bytes())) as (address, requests):
        source = copied(f"{address}/all.m3u8", tmp_path / "out.mp4")
    assert source.info.size == (48, 64) and len(source.info.tracks) == 1 and source.counts.read == 300
    segments = {name: sum(name in path and path.endswith(".ts") for path in requests) for name in rates}
    assert segments["large"] == 2, "x264 sets a key frame every 250 frames"
    assert max(segments["small"], segments["medium"]) <= 1, "others are read only to find out what they hold"
