"""Passwords in addresses: they go to FFmpeg, and nowhere else."""

import http.server
import json
import subprocess
import sys
import threading

import pytest
from clips import make_clip
from served import write_model

SECRET = "hunter2"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A model, and a clip behind an address."""
    folder = tmp_path_factory.mktemp("site")
    write_model(folder / "m.onnx", step=0)
    make_clip(folder / "clip.mp4", 6, options={"movflags": "faststart"})
    return folder


@pytest.fixture(scope="module")
def address(site):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(site))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://user:{SECRET}@127.0.0.1:{server.server_port}/clip.mp4?key={SECRET}"
    server.shutdown()
    server.server_close()
    thread.join()


def told(folder, *words):
    """Everything that a command says and writes, and its exit code."""
    command = [sys.executable, "-m", "rcil_serve", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    files = [path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]
    return "\n".join([done.stdout, done.stderr, *files]), done.returncode


OUTPUTS = {
    "video": ["--model", "{m}", "--jsonl", "a.jsonl", "--timeline", "a.png", "--receipt", "r.json"],
    "watch": ["--model", "{m}", "--events", "e.jsonl", "--save-baseline", "b.json", "--receipt", "r.json"],
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_run_writes_no_password(tmp_path, site, address, command):
    options = [word.format(m=site / "m.onnx") for word in OUTPUTS[command]]
    text, code = told(tmp_path, command, address, *options, "--threads", "1")
    assert code == 0, text
    assert json.loads((tmp_path / "r.json").read_text())["source"]["name"].startswith("http://***@127.0.0.1:")
    assert SECRET not in text


@pytest.mark.parametrize("source", ["rtsp://user:{}@127.0.0.1:1/a", "rtsp://user:x/{}@127.0.0.1:1/a", "ftp://u:{}@h/a"])
def test_an_error_shows_no_password_even_with_its_traceback(tmp_path, site, source):
    words = ("--debug", "video", source.format(SECRET), "--model", site / "m.onnx", "--jsonl", "a.jsonl")
    text, code = told(tmp_path, *words, "--timeout", "2", "--attempts", "1")
    assert code != 0 and "Traceback" in text
    assert SECRET not in text
