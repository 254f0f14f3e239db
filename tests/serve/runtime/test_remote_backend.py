import http.server
import json
import threading
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from servers import ANY_SIZE, FIXED, picture, rows_of, running, write_model

from rcil.core.errors import ConfigError, RunError, TrustError
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.run import listen, make_server
from rcil_serve.runtime import remote_backend
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.runtime.remote_backend import remote_address


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return write_model(folder / "new.onnx", 2, ANY_SIZE), write_model(folder / "old.onnx", 1, ANY_SIZE)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(remote_backend, "PAUSES", (0.02,))


def remote(address, name="rcil"):
    return open_backend(Path(f"triton://{address}/{name}"))


def test_a_model_on_a_server_is_like_its_file(models):
    with running(make_app(HttpOptions(models[0], previous=models[1], threads=1))) as address:
        there, here = remote(address), open_backend(models[0], "cpu", 1)
        assert (there.metadata, there.interface, there.sha256) == (here.metadata, here.interface, here.sha256)
        assert there.name == f"triton://{address}/rcil" and there.device == f"server {address}"
        batch = np.stack([picture(seed, 40, 64) for seed in range(3)])
        found, wanted = there.run(batch), here.run(batch)
        np.testing.assert_array_equal(found.mask, wanted.mask)
        np.testing.assert_array_equal(found.confidence, wanted.confidence)
        old = remote(address, "rcil/1")
        assert old.metadata.step == 1
        image = picture(9, 104, 88)
        np.testing.assert_array_equal(Predictor(old).segment(image).mask, rows_of(image, 1))
        for backend in (there, old):
            backend.close()


def test_masks_and_fixed_sizes(tmp_path):
    path = write_model(tmp_path / "fixed.onnx", 1, FIXED)
    with running(make_app(HttpOptions(path, threads=1))) as address:
        backend = remote(address)
        found = backend.run(picture(1)[None])
        np.testing.assert_array_equal(found.mask[0], rows_of(picture(1), 1))
        assert found.confidence is None
        with pytest.raises(RunError, match="refuses a batch"):
            backend.run(np.zeros((1, 5, 5, 3), np.uint8))
        backend.close()


def serve_again(model, port, seconds, done):
    """Serve on a port that was used before, after a pause, until `done` is set."""
    time.sleep(seconds)
    with listen("127.0.0.1", port) as place:
        server = make_server(make_app(HttpOptions(model, threads=1)), timeout_s=1)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        done.wait(20)
        server.should_exit = True
        thread.join()


def test_a_run_waits_for_a_server_that_restarts(models, caplog):
    with running(make_app(HttpOptions(models[0], threads=1))) as address:
        backend = remote(address)
        backend.run(picture(1)[None])
    done = threading.Event()
    thread = threading.Thread(target=serve_again, args=(models[0], int(address.split(":")[1]), 0.5, done))
    thread.start()
    found = backend.run(picture(2)[None])
    np.testing.assert_array_equal(found.mask[0], rows_of(picture(2), 2))
    backend.close()
    done.set()
    thread.join()
    assert "is away" in caplog.text and "answers again" in caplog.text


def test_waiting_ends_when_it_is_told_to(models):
    with running(make_app(HttpOptions(models[0], threads=1))) as address:
        backend = remote(address)
    timer = threading.Timer(0.2, Predictor(backend).stop)
    timer.start()
    with pytest.raises(RunError, match="is away"):
        backend.run(picture(1)[None])
    timer.join()


def test_a_version_that_is_gone_is_an_error(tmp_path):
    path = write_model(tmp_path / "m.onnx", 1, ANY_SIZE)
    app = make_app(HttpOptions(path, threads=1))
    with running(app) as address:
        backend = remote(address)
        for step in (2, 3):
            write_model(path, step, ANY_SIZE)
            app.state.service.reloader.reload()
        with pytest.raises(RunError, match="no longer serves the version of this run; it has 2, 3"):
            backend.run(picture(1)[None])
        backend.close()


def test_what_cannot_be_opened(models, monkeypatch):
    with running(make_app(HttpOptions(models[0], threads=1, token="s3cret"))) as address:
        with pytest.raises(ConfigError, match="token") as caught:
            remote(address)
        assert "RCIL_MODEL_TOKEN" in caught.value.hint
        monkeypatch.setenv("RCIL_MODEL_TOKEN", "s3cret")
        for name, message in (("other", "unknown model 'other'"), ("rcil/7", "rcil/7 is not served")):
            with pytest.raises(ConfigError, match=message):
                remote(address, name)
        remote(address).close()
        with pytest.raises(TrustError, match="signatures"):
            open_backend(Path(f"triton://{address}/rcil"), trust=[Path("key.pub")])
        with pytest.raises(ConfigError, match="runs on its server"):
            open_backend(Path(f"triton://{address}/rcil"), "cpu")
    with pytest.raises(RunError, match="does not answer"):
        remote(address)


@pytest.mark.parametrize(
    "text", ["triton://host", "triton://host/a/b", "triton://host/a/1/2", "triton://u:p@host/a", "triton://"]
)
def test_addresses_that_are_none(text):
    with pytest.raises(ConfigError, match="not the address of a model") as caught:
        remote_address(Path(text))
    assert "triton://HOST:PORT/MODEL" in caught.value.hint


def test_files_are_no_addresses():
    assert remote_address(Path("deployed/model.onnx")) is None
    assert str(remote_address(Path("tritons://gpu.local:8443/yard/2"))) == "tritons://gpu.local:8443/yard/2"


class Broken(http.server.BaseHTTPRequestHandler):
    """Describes a model, and answers requests with what `answers` holds."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar = {}

    def do_GET(self):
        self.reply(*self.answers.get(self.path.rpartition("/")[2], (200, b"{}")))

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(*self.answers["infer"])

    def reply(self, status, content, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def test_answers_that_cannot_be_read(models):
    config = json.dumps(
        make_app(HttpOptions(models[0], threads=1)).state.service.models.current.config("rcil")
    ).encode()
    Broken.answers = {"rcil": (200, b'{"versions": ["2"]}'), "config": (200, config)}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        backend = remote(f"127.0.0.1:{server.server_port}")
        mask = {"name": "mask", "datatype": "UINT8", "shape": [1, 2, 2], "parameters": {"binary_data_size": 4}}
        for header in ({"outputs": [mask]}, {"outputs": [mask | {"shape": [1, 2, 3]}]}, {}, []):
            text = json.dumps(header).encode()
            sizes = {"Inference-Header-Content-Length": str(len(text))}
            Broken.answers["infer"] = (200, text + bytes(4), sizes)
            with pytest.raises(RunError, match="cannot be read"):
                backend.run(picture(1)[None])
        Broken.answers["infer"] = (200, b"{}", {})
        with pytest.raises(RunError, match="cannot be read"):
            backend.run(picture(1)[None])
        backend.close()
        Broken.answers["config"] = (200, b'{"parameters": {}}')
        with pytest.raises(ConfigError, match="does not state its classes"):
            remote(f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
