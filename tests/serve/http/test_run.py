import asyncio
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import pytest
from servers import server_process, write_model

from rcil.core.errors import ConfigError
from rcil_serve.http import run
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
        process.wait(timeout=30)
    said = log.read_text()
    assert "False" in said.splitlines(), "torch stays out"
    assert "model.onnx is not an ONNX file, or damaged" in said
    assert "GET /classes 200" in said
    assert "s3cret" not in said


def wait_for(condition):
    until = time.monotonic() + 20
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
        process.wait(timeout=30)
    assert log.read_text() == ""


def answers(address):
    try:
        return httpx.get(address).status_code == 200
    except httpx.TransportError:
        return False
