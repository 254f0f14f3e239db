import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from fractions import Fraction
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from served import Threshold, expected

from rcil.core.errors import ConfigError
from rcil_serve.live import app as app_module
from rcil_serve.live.pictures import Pictures
from rcil_serve.live.server import ViewOptions, parse_view, serving
from rcil_serve.live.view import LiveView
from rcil_serve.runtime.predictor import Predictor, Segmentation
from rcil_serve.runtime.zones import parse_zone
from rcil_serve.stream.frames import Counts, Frame, SourceInfo
from rcil_serve.stream.pipeline import SegmentedFrame

MODEL = Threshold()
RED = np.zeros((48, 64, 3), np.uint8)
RED[:, :16, 0] = 255


@pytest.fixture
def view():
    info = SourceInfo("gate", (48, 64), Fraction(25), Fraction(1, 1000), live=True)
    return LiveView(SimpleNamespace(info=info, counts=Counts(dropped=2)), MODEL, Pictures(), lambda: ["fire"])


def publish(view, pixels=RED, index=0):
    frame = Frame(index, index, index / 10, pixels, time.perf_counter())
    found = Predictor(MODEL).segment(pixels)
    view.publish(SegmentedFrame(frame, found, 0.005), MODEL.metadata.classes)


@contextlib.contextmanager
def served(view, **options):
    told = []
    with serving(view, ViewOptions(port=0, **options), told.append):
        yield told[0].removeprefix("live view: ")


def get(address, headers=()):
    with urllib.request.urlopen(urllib.request.Request(address, headers=dict(headers)), timeout=20) as answer:
        return answer.status, answer.read(), answer.headers


def test_the_numbers_are_those_of_the_frame(view, threads):
    with served(view) as address:
        assert json.loads(get(f"{address}/state")[1])["frame"] == 0, "before the first frame"
        publish(view)
        view.add_event("raised", "2026-01-01T00:00:00+00:00", 1.23, "fire")
        state = json.loads(get(f"{address}/state")[1])
    assert (state["source"], state["size"], state["live"], state["dropped"]) == ("gate", [64, 48], True, 2)
    assert {entry["name"]: entry["share"] for entry in state["classes"]} == {"a": 0.25, "b": 0.0, "new1": 0.0}
    assert state["alarms"] == ["fire"] and state["events"][0]["text"] == "fire"
    assert state["infer_ms"] == 5.0 and state["frame"] == 1
    assert threading.active_count() <= threads


def test_a_picture_is_painted_and_comes_once(view, monkeypatch):
    monkeypatch.setattr(app_module, "HOLD_S", 0.3)
    publish(view)
    with served(view) as address:
        status, content, headers = get(f"{address}/frame.jpg")
        assert (status, headers["X-Rcil-Frame"]) == (200, "1")
        drawn = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[..., ::-1].astype(int)
        colour = np.array(MODEL.metadata.classes[1].colour)
        assert np.abs(drawn[24, 6] - (RED[24, 6] + colour) / 2).max() < 40
        assert drawn[24, 40].max() < 20, "the background stays as it is"
        assert get(f"{address}/frame.jpg?after=1")[0] == 204, "nothing new"
        publish(view, index=1)
        assert get(f"{address}/frame.jpg?after=1")[2]["X-Rcil-Frame"] == "2"


def test_the_stream_holds_one_jpeg_after_another(view):
    publish(view)
    with served(view) as address, urllib.request.urlopen(f"{address}/stream.mjpg", timeout=20) as answer:
        assert answer.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=frame"
        for index in range(1, 4):
            assert answer.readline() == b"--frame\r\n"
            headers = dict(line.split(": ") for line in iter(lambda: answer.readline().decode().strip(), ""))
            assert answer.read(int(headers["Content-Length"]))[:2] == b"\xff\xd8"
            assert answer.read(2) == b"\r\n"
            publish(view, index=index)


def test_the_end_of_a_run_does_not_wait_for_viewers(view):
    publish(view)
    begun = time.monotonic()
    with served(view) as address:
        stream = urllib.request.urlopen(f"{address}/stream.mjpg", timeout=20)
        stream.readline()
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    stream.close()


def test_with_a_token_only_the_page_is_public(view):
    publish(view)
    with served(view, token="s3cret") as address:
        page = get(f"{address}/")
        assert b"live.js" in page[1] and "default-src 'none'" in page[2]["Content-Security-Policy"]
        for path in ("/live.js", "/live.css", "/page.css", "/api.js", "/favicon.ico"):
            assert get(address + path)[0] == 200
        for path in ("/state", "/frame.jpg", "/stream.mjpg", "/nowhere"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(address + path)
            assert caught.value.code == 401
            caught.value.close()
        assert get(f"{address}/state", {"Authorization": "Bearer s3cret"}.items())[0] == 200


def test_nothing_is_drawn_while_nobody_looks(view, monkeypatch):
    drawn = []
    monkeypatch.setattr(view.pictures, "jpeg", lambda *_: drawn.append(1) or b"")
    for index in range(10):
        publish(view, index=index)
    assert not drawn
    for _ in range(3):
        view.jpeg(view.newest)
    assert len(drawn) == 1, "one picture for all viewers"


def test_the_rate_is_that_of_the_last_seconds(view, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    for index in range(60):
        now[0] += 0.1
        publish(view, index=index)
    assert view.rate == pytest.approx(10, rel=0.05)
    now[0] += 20
    assert view.rate == 0


def test_large_frames_are_scaled_down_and_zones_drawn():
    pixels = np.zeros((1500, 2000, 3), np.uint8)
    pixels[:, :1000, 0] = 255
    found = Segmentation(expected(pixels), None, None)
    zone = parse_zone("dock=0.6,0.2 0.9,0.2 0.9,0.8 0.6,0.8")
    content = Pictures((zone,)).jpeg(pixels, found, MODEL.metadata.classes)
    drawn = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape == (960, 1280, 3)
    assert drawn[480, 768 - 3 : 768 + 4].max() > 200, "the left side of the zone"
    assert drawn[480, 1000].max() < 20


@pytest.mark.parametrize(
    ("text", "host", "port"), [("8080", "127.0.0.1", 8080), ("0.0.0.0:0", "0.0.0.0", 0), ("[::1]:80", "::1", 80)]
)
def test_addresses(text, host, port):
    found = parse_view(text, "t")
    assert (found.host, found.port, found.token) == (host, port, "t")
    assert "'t'" not in repr(found)


@pytest.mark.parametrize("text", ["", "here", ":80", "70000", "a:b:80", "http://here:80"])
def test_addresses_that_are_none(text):
    with pytest.raises(ConfigError, match="--view"):
        parse_view(text)
