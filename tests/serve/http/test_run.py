import asyncio
import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from servers import ANY_SIZE, png, running, server_process, write_model

from rcil.core.errors import ConfigError
from rcil_serve.http import run
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.run import listen


def test_the_process_reloads_on_sighup_and_stops_on_sigint(tmp_path):
    model, log = write_model(tmp_path / "model.onnx", 1), tmp_path / "log"
    with server_process(model, log, token="s3cret") as (address, process):
        with httpx.Client(base_url=address, headers={"Authorization": "Bearer s3cret"}) as client:
            assert client.get("/classes").json()["current"]["step"] == 1
            write_model(model, 2)
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: client.get("/classes").json()["current"]["step"] == 2)
            model.write_bytes(b"damaged")
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: 'rcil_reloads_total{result="failed"} 1.0' in client.get("/metrics").text)
            assert client.get("/classes").json()["current"]["step"] == 2
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
    said = log.read_text()
    assert "False" in said.splitlines(), "torch stays out"
    assert "model.onnx is not an ONNX file, or damaged" in said
    assert "GET /classes 200" in said
    assert "s3cret" not in said


def wait_for(condition):
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_an_address_in_use():
    with listen("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)


def test_a_reload_that_is_asked_for_while_the_model_loads_comes_after_that(tmp_path, monkeypatch):
    """The signal's default is to end the process."""
    done = []

    service = SimpleNamespace(reloader=SimpleNamespace(reload=lambda wait_s: done.append(wait_s)))
    app = SimpleNamespace(state=SimpleNamespace(service=service))

    class Server:
        async def serve(self, sockets):
            while not done:
                await asyncio.sleep(0.01)

    def loading(options):
        signal.raise_signal(signal.SIGHUP)
        return app

    monkeypatch.setattr(run, "make_app", loading)
    monkeypatch.setattr(run, "make_server", lambda app, timeout_s: Server())
    before = signal.getsignal(signal.SIGHUP)
    try:
        run.serve(HttpOptions(tmp_path / "m.onnx", port=0))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done == [run.RELOAD_WAIT_S]


def test_a_quiet_server_logs_no_requests(tmp_path):
    model, log = write_model(tmp_path / "model.onnx", 1), tmp_path / "log"
    with listen("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
    command = [sys.executable, "-m", "rcil_serve", "-q", "http", "--model", str(model), "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--threads", "1"], stdout=file, stderr=file)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/classes"))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
    assert log.read_text() == ""


def answers(address):
    try:
        return httpx.get(address).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def app(tmp_path):
    return make_app(HttpOptions(write_model(tmp_path / "m.onnx", 1), threads=1))


def closed_after(place, *parts):
    """Send parts, a pause after each, until the server hangs up; whether it did."""
    place.settimeout(60)
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
    monkeypatch.setattr(run, "HEADER_S", 0.4)
    with running(app) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as place:
            assert closed_after(place, first, *[b"X: y\r\n"] * 8 if first else ())


def test_the_second_header_of_a_connection_may_not_trickle_either(app, monkeypatch):
    monkeypatch.setattr(run, "HEADER_S", 1.0)  # on a busy machine the first header needs some of it
    with running(app) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as place:
            place.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n")
            assert place.recv(4096).startswith(b"HTTP/1.1 200")
            assert closed_after(place, b"GET / HTTP/1.1\r\n", *[b"X: y\r\n"] * 14)


@pytest.mark.parametrize("ending", ["", "Connection: close\r\n"])
def test_an_answer_that_nobody_reads_is_thrown_away(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(run, "ANSWER_S", 0.3)
    app = make_app(HttpOptions(write_model(tmp_path / "m.onnx", 1, ANY_SIZE), threads=1))
    made = []
    lost = run.TimeoutProtocol.connection_lost
    monkeypatch.setattr(run.TimeoutProtocol, "connection_lost", noting(lost, made))
    body = png(np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), dtype=np.uint8))
    with running(app) as address, socket.socket() as place:
        host, port = address.split(":")
        place.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        place.connect((host, int(port)))
        head = f"POST /segment?output=overlay HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n{ending}\r\n"
        place.sendall(head.encode() + body)
        until = time.monotonic() + 120
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
    monkeypatch.setattr(run, "ANSWER_S", 0.2)
    with running(app) as address:
        asked = http.client.HTTPConnection(address, timeout=20)
        for _ in range(2):
            asked.request("GET", "/page.js")
            assert len(asked.getresponse().read()) > 1000
            time.sleep(0.4)
        asked.close()


def test_a_slow_body_has_the_time_of_the_request(app, monkeypatch):
    monkeypatch.setattr(run, "HEADER_S", 0.2)
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


def test_idle_connections_lock_nobody_out(app):
    """Each new connection replaces the one that has been idle for longest."""
    with running(app) as address, contextlib.ExitStack() as stack:
        host, port = address.split(":")
        known = stack.enter_context(contextlib.closing(http.client.HTTPConnection(address, timeout=20)))
        silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(520)]
        for asked in (http.client.HTTPConnection(address, timeout=20), known):
            asked.request("GET", "/v2/health/live")
            assert asked.getresponse().status == 200
            asked.close()
        assert closed_after(silent[0]), "the oldest made room"
        silent[-1].sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n")
        assert silent[-1].recv(100).startswith(b"HTTP/1.1 200"), "the newest did not"


def test_beyond_the_limit_only_the_excess_is_refused(app, monkeypatch):
    monkeypatch.setattr(run, "MAX_CONNECTIONS", 2)
    with running(app) as address, contextlib.ExitStack() as stack:
        host, port = address.split(":")
        busy = [stack.enter_context(contextlib.closing(http.client.HTTPConnection(address, timeout=20))) for _ in "ab"]
        for asked in busy:
            asked.putrequest("POST", "/segment")
            asked.putheader("Content-Length", "1")
            asked.putheader("Expect", "100-continue")
            asked.endheaders()
            assert asked.sock.recv(1000).startswith(b"HTTP/1.1 100"), "the server waits for the body"
        with socket.create_connection((host, int(port)), timeout=20) as place:
            refused = b"".join(iter(lambda: place.recv(1000), b""))
        head, body = refused.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503") and f"Content-Length: {len(body)}".encode() in head
        for asked in busy:
            asked.send(b"x")
            assert asked.getresponse().status == 400, "an answer about the image"
