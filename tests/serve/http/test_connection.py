import http.client
import socket
import time

import numpy as np
import pytest
from servers import ANY_SIZE, png, running, write_model

from rcil_serve.http import connection
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions


@pytest.fixture
def app(tmp_path):
    return make_app(HttpOptions(write_model(tmp_path / "m.onnx", 1), threads=1))


def closed_after(place, *parts):
    """Send parts, a pause after each, until the server hangs up; whether it did."""
    place.settimeout(5)
    try:
        for part in parts:
            place.sendall(part)
            time.sleep(0.1)
        return place.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    "first", [b"", b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n"], ids=["silence", "slow headers"]
)
def test_a_header_that_does_not_end_ends_the_connection(app, monkeypatch, first):
    monkeypatch.setattr(connection, "HEADER_S", 0.4)
    with running(app) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as place:
            assert closed_after(place, first, *[b"X: y\r\n"] * 8 if first else ())


def test_the_second_header_of_a_connection_may_not_trickle_either(app, monkeypatch):
    monkeypatch.setattr(connection, "HEADER_S", 0.4)
    with running(app) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as place:
            place.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n")
            assert place.recv(4096).startswith(b"HTTP/1.1 200")
            assert closed_after(place, b"GET / HTTP/1.1\r\n", *[b"X: y\r\n"] * 8)


@pytest.mark.parametrize("ending", ["", "Connection: close\r\n"])
def test_an_answer_that_nobody_reads_is_thrown_away(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(connection, "ANSWER_S", 0.3)
    app = make_app(HttpOptions(write_model(tmp_path / "m.onnx", 1, ANY_SIZE), threads=1))
    made = []
    lost = connection.TimeoutProtocol.connection_lost
    monkeypatch.setattr(connection.TimeoutProtocol, "connection_lost", noting(lost, made))
    body = png(np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), dtype=np.uint8))
    with running(app) as address, socket.socket() as place:
        host, port = address.split(":")
        place.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        place.connect((host, int(port)))
        head = f"POST /segment?output=overlay HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n{ending}\r\n"
        place.sendall(head.encode() + body)
        until = time.monotonic() + 20
        while not made and time.monotonic() < until:
            time.sleep(0.05)
        assert made, "the server holds it still"


def noting(method, made):
    """A method that notes its calls."""

    def noted(*given):
        made.append(1)
        return method(*given)

    return noted


def test_an_answer_that_is_read_late_but_in_time_is_whole(app, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_S", 0.2)
    with running(app) as address:
        asked = http.client.HTTPConnection(address, timeout=20)
        for _ in range(2):
            asked.request("GET", "/page.js")
            assert len(asked.getresponse().read()) > 1000
            time.sleep(0.4)
        asked.close()


def test_a_slow_body_has_the_time_of_the_request(app, monkeypatch):
    monkeypatch.setattr(connection, "HEADER_S", 0.2)
    with running(app) as address:
        asked = http.client.HTTPConnection(address, timeout=20)
        asked.putrequest("POST", "/segment")
        asked.putheader("Content-Length", "4")
        asked.endheaders(b"a")
        for _ in range(3):
            time.sleep(0.15)
            asked.send(b"a")
        assert asked.getresponse().status == 400
        asked.close()
