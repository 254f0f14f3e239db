"""Bad sources, full disks, kills and stalls: clear errors, nothing lost, no thread left."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from clips import contents, make_clip
from served import FIXED, write_model

from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.outputs.movie import DiskFullError
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.stream.sources import Selection, open_source
from rcil_serve.stream.sources.live import LiveOptions
from rcil_serve.video.run import VideoRequest, run_video


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model.onnx", FIXED)


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory):
    """Longer than any test waits; nothing writes to it."""
    path = tmp_path_factory.mktemp("long") / "in.mp4"
    make_clip(path, 4000, (160, 208), times=[512 * index for index in range(4000)])
    return path


def request_of(model, source, folder, **changes):
    fields = {"targets": Targets(folder / "out.mp4"), "receipt": folder / "receipt.json", "device": "cpu", "threads": 1}
    return VideoRequest(source=str(source), model=model, **(fields | changes))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("absent.mp4", None, "absent.mp4 does not exist"),
        ("empty.mp4", b"", "empty.mp4 is empty"),
        ("text.mp4", b"this is no video at all\n" * 40, "text.mp4 cannot be opened as a video: Invalid data"),
    ],
)
def test_what_is_no_video_is_named_and_nothing_is_written(model, tmp_path, name, data, words):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=words):
        run_video(request_of(model, tmp_path / name, tmp_path))
    assert not (tmp_path / "out.mp4").exists() and not list(tmp_path.glob("*.part*"))


def test_a_file_without_its_index_is_an_error(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 30)
    data = (tmp_path / "in.mp4").read_bytes()
    (tmp_path / "in.mp4").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match=r"in\.mp4 cannot be opened as a video"):
        run_video(request_of(model, tmp_path / "in.mp4", tmp_path))


def test_what_a_cut_file_has_is_written_and_the_rest_is_reported(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 60, options={"movflags": "faststart"})
    data = (tmp_path / "in.mp4").read_bytes()
    (tmp_path / "in.mp4").write_bytes(data[: len(data) * 2 // 3])
    result = run_video(request_of(model, tmp_path / "in.mp4", tmp_path))
    frames = result["frames"]
    assert 10 < frames["written"] < 60 and frames["written"] == len(contents(tmp_path / "out.mp4").times)
    assert any("is truncated: it announces 60 frames" in text for text in frames["problems"])
    command = [sys.executable, "-m", "rcil_serve", "video", "in.mp4", "-m", str(model), "-o", "again.mp4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 6 and "truncated" in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "again.mp4").exists()


def test_damaged_frames_are_counted_not_replaced(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 40, (96, 128))
    data = bytearray((tmp_path / "in.mp4").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = bytes(300)
    (tmp_path / "in.mp4").write_bytes(bytes(data))
    frames = run_video(request_of(model, tmp_path / "in.mp4", tmp_path))["frames"]
    assert frames["corrupt"] > 0
    assert frames["corrupt"] + frames["written"] <= 40 and frames["written"] == frames["read"]
    assert len(contents(tmp_path / "out.mp4").times) == frames["written"]


class Broken:
    """A backend that fails at its third frame."""

    def __init__(self, backend):
        self.__dict__.update(name=backend.name, sha256=backend.sha256, device="here")
        self.metadata, self.interface, self.count = backend.metadata, backend.interface, 0

    def run(self, batch):
        self.count += 1
        if self.count == 3:
            raise ZeroDivisionError("in the third frame")
        from rcil_serve.runtime.backends import Outputs

        return Outputs(batch[..., 0] * 0, None)

    def close(self):
        pass


def test_the_first_error_ends_all_threads_and_stands_in_the_receipt(model, tmp_path, monkeypatch, threads):
    from rcil_serve.runtime.backends import open_backend
    from rcil_serve.stream import options

    make_clip(tmp_path / "in.mp4", 40)
    monkeypatch.setattr(options, "open_backend", lambda *args: Broken(open_backend(*args)))
    with pytest.raises(ZeroDivisionError):
        run_video(request_of(model, tmp_path / "in.mp4", tmp_path))
    assert threading.active_count() <= threads
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["status"] == "failed" and "in the third frame" in receipt["error"]
    assert not (tmp_path / "out.mp4").exists()


def test_a_selection_without_frames_leaves_nothing_but_the_receipt(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 5)
    with pytest.raises(SourceError, match="delivered no frames"):
        run_video(request_of(model, tmp_path / "in.mp4", tmp_path, selection=Selection(start=100.0)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mp4", "receipt.json"]


def test_an_error_of_the_display_ends_the_run(model, tmp_path, long_clip, threads):
    def show(progress):
        raise ZeroDivisionError("display")

    with pytest.raises(ZeroDivisionError, match="display"):
        run_video(request_of(model, long_clip, tmp_path), show=show)
    assert threading.active_count() <= threads


def wait_for(condition, seconds=300.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def start(folder, model, source, *options):
    command = [sys.executable, "-m", "rcil_serve", "video", str(source), "-m", str(model), "-o", "out.mp4", *options]
    return subprocess.Popen(
        [*command, "--threads", "1", "--device", "cpu"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def test_kill_leaves_a_playable_file_and_a_receipt(model, tmp_path, long_clip):
    process = start(tmp_path, model, long_clip, "--jsonl", "frames.jsonl")
    try:
        wait_for(lambda: size_of(tmp_path / "out.part.mp4") > 30_000 and (tmp_path / "out.receipt.json").exists())
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    found = contents(tmp_path / "out.part.mp4", cut=True)
    assert len(found.times) > 10
    assert found.times == sorted(found.times)
    receipt = json.loads((tmp_path / "out.receipt.json").read_text())
    assert receipt["status"] == "running" and receipt["source"]["name"].endswith("in.mp4")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_finishes_what_was_read(model, tmp_path, long_clip, number):
    process = start(tmp_path, model, long_clip)
    wait_for(lambda: size_of(tmp_path / "out.part.mp4") > 10_000)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert b"Traceback" not in err
    assert process.returncode == 0 and b"interrupted" in out
    receipt = json.loads((tmp_path / "out.receipt.json").read_text())
    assert receipt["status"] == "interrupted"
    assert len(contents(tmp_path / "out.mp4").times) == receipt["frames"]["written"] > 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 kB, where one may be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_names_the_space_needed_and_keeps_what_fits(model, tmp_path, small_disk, long_clip, threads):
    with pytest.raises(DiskFullError, match="the disk is full") as caught:
        run_video(
            request_of(model, long_clip, tmp_path, targets=Targets(small_disk / "out.mp4"), receipt=tmp_path / "r.json")
        )
    assert "All 4000 frames need about" in caught.value.hint
    assert len(contents(small_disk / "out.part.mp4").times) > 10
    assert json.loads((tmp_path / "r.json").read_text())["status"] == "failed"
    assert threading.active_count() <= threads


def test_a_stream_that_goes_away_leaves_a_whole_video_and_an_error(model, tmp_path):
    make_clip(tmp_path / "a.ts", 40, times=[512 * index for index in range(40)])
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(300)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        process = start(tmp_path, model, address, "--attempts", "1", "--timeout", "5")
        client = server.accept()[0]
        with client:
            client.sendall((tmp_path / "a.ts").read_bytes())
    _, err = process.communicate(timeout=300)
    assert process.returncode == 6 and b"was lost: 1 attempts to reconnect failed" in err
    receipt = json.loads((tmp_path / "out.receipt.json").read_text())
    assert len(contents(tmp_path / "out.mp4").times) == receipt["frames"]["written"] > 0
    assert receipt["frames"]["read"] == receipt["frames"]["written"] + receipt["frames"]["dropped"]


def test_a_stream_that_stalls_is_given_up_with_an_error(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"http://user:secret@127.0.0.1:{server.getsockname()[1]}/live.ts"
        start_time = time.monotonic()
        with pytest.raises(SourceError, match=r"http://\*\*\*@127.0.0.1:\d+/live.ts cannot be opened") as caught:
            open_source(address, live=LiveOptions(timeout=0.5, attempts=1))
    assert "secret" not in str(caught.value)
    assert time.monotonic() - start_time < 120


def test_a_file_that_crashes_the_decoder_ends_only_its_own_run(model, tmp_path, monkeypatch):
    """The process that decodes is aborted after frame 20, as by a corrupted heap."""
    from rcil_serve.stream.shutdown import raise_source_errors
    from rcil_serve.stream.sources import isolated

    crashing = (
        "import sys; sys.path[:] = {path}; from rcil_serve.stream.sources import decoder_process as d; send = d._send\n"
        "def crash(out, message, *more):\n"
        "    send(out, message, *more)\n"
        "    message.get('index') == 20 and d.os.abort()\n"
        "d._send = crash; d.main({memory})"
    )
    make_clip(tmp_path / "in.mp4", 60, sound="aac")
    monkeypatch.setattr(isolated, "_CHILD", crashing)
    result = run_video(request_of(model, tmp_path / "in.mp4", tmp_path))
    assert result["status"] == "done" and result["frames"]["written"] == 21
    assert len(contents(tmp_path / "out.mp4").times) == 21
    with pytest.raises(SourceError, match=r"crashes the decoder \(SIGABRT\) after 21 frames"):
        raise_source_errors(result, tmp_path / "receipt.json", "written")
