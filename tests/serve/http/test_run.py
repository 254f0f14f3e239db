import signal
import time

import httpx
import pytest
from servers import server_process, write_model

from rcil.errors import ConfigError
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
