import json
import subprocess
import sys

import cv2
import numpy as np
import pytest
from clips import contents, make_clip
from commands import call
from networks import at_step, small_arch
from served import write_model

from rcil.checkpoint.file import save
from rcil.model.header import read_header
from rcil.model.metadata import Metadata, class_table


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(tmp_path):
    model = at_step(small_arch(), 0)
    save(tmp_path / "m.safetensors", model, Metadata(architecture=model.arch, classes=class_table([list(model.names)])))
    cv2.imwrite(str(tmp_path / "image.png"), np.full((40, 60, 3), (10, 20, 30), np.uint8))
    mask = np.zeros((40, 60), np.uint8)
    mask[10:20, 10:20] = 1
    cv2.imwrite(str(tmp_path / "mask.png"), mask)
    return tmp_path


def serve(command, *words):
    return call(f"rcil-serve {command}", *words)


OVERLAY = ["overlay", "image.png", "mask.png", "--model", "m.safetensors", "-o", "out.png"]


def test_overlay(files):
    done = serve(*OVERLAY, "--alpha", "1", "--no-legend")
    assert done.code == 0, done.err
    drawn = cv2.imread(str(files / "out.png"))[..., ::-1]
    assert drawn.shape == (40, 60, 3)
    assert drawn[15, 15].tolist() == list(read_header(files / "m.safetensors").metadata.classes[1].colour)
    assert drawn[0, 0].tolist() == [30, 20, 10], "colours stay in order"


def test_overlay_with_an_exported_model(files):
    write_model(files / "m.onnx")
    done = serve("overlay", "image.png", "mask.png", "--model", "m.onnx", "-o", "out.png")
    assert done.code == 0, done.err
    (files / "m.onnx").write_bytes(b"broken")
    done = serve("overlay", "image.png", "mask.png", "--model", "m.onnx", "-o", "other.png")
    assert done.code == 3 and "m.onnx" in done.err and not (files / "other.png").exists()


def test_legend_is_added_below(files):
    assert serve(*OVERLAY).code == 0
    assert cv2.imread(str(files / "out.png")).shape[0] > 40


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: cv2.imwrite(str(f / "mask.png"), np.zeros((40, 60, 3), np.uint8)), "true-colour"),
        (lambda f: cv2.imwrite(str(f / "mask.png"), np.zeros((40, 61), np.uint8)), "61x40"),
        (lambda f: (f / "mask.png").write_bytes(b"no image"), "is not a PNG file"),
        (lambda f: (f / "image.png").write_bytes(b""), "not an image that can be decoded"),
        (lambda f: (f / "image.png").unlink(), "No such file"),
    ],
)
def test_bad_input(files, make, message):
    make(files)
    done = serve(*OVERLAY)
    assert done.code == 6
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (files / "out.png").exists()


def test_serving_imports_no_torch(files):
    script = (
        "import sys; sys.argv = ['rcil-serve', *sys.argv[1:]]\n"
        "from rcil_serve.cli.app import app\n"
        "try: app()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert 'torch' not in sys.modules and 'cv2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, *OVERLAY], check=True, cwd=files)


def test_video_from_the_command_line(tmp_path):
    write_model(tmp_path / "m.onnx")
    make_clip(tmp_path / "in.mp4", 6)
    command = [sys.executable, "-m", "rcil_serve", "video", "in.mp4", "-m", "m.onnx", "-o", "out.mp4", "--threads", "1"]
    done = subprocess.run([*command, "--legend", "--smooth", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "done: 6 frames" in done.stdout and "CPU" in done.stdout
    assert len(contents(tmp_path / "out.mp4").times) == 6
    assert json.loads((tmp_path / "out.receipt.json").read_text())["status"] == "done"
    told = serve("video", "in.mp4", "-m", "m.onnx", "--jsonl", "f.jsonl", "--json", "--max-frames", "2")
    assert json.loads(told.out)["frames"]["written"] == 2


def test_images_from_the_command_line(tmp_path):
    write_model(tmp_path / "m.onnx")
    for name, size in (("a", (40, 60)), ("b", (50, 30))):
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full((*size, 3), (10, 20, 30), np.uint8))
    (tmp_path / "c.jpg").write_bytes(b"broken")
    done = serve("images", ".", "-m", "m.onnx", "-o", "seen")
    assert done.code != 0 and "1 of 3 images could not be read" in done.err
    assert cv2.imread(str(tmp_path / "seen" / "masks" / "b.png"), cv2.IMREAD_UNCHANGED).shape == (50, 30)
    assert cv2.imread(str(tmp_path / "seen" / "overlays" / "a.jpg")).shape == (40, 60, 3)
    assert [entry["size"] for entry in json.loads((tmp_path / "seen" / "images.json").read_text())["images"]] == [
        [40, 60],
        [50, 30],
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["video", "in.mp4", "-m", "absent.onnx", "-o", "out.mp4"], 3, "cannot read absent.onnx"),
        (["video", "absent.mp4", "-m", "m.onnx", "-o", "out.mp4"], 6, "absent.mp4 does not exist"),
        (["video", "m.onnx", "-m", "m.onnx", "-o", "out.mp4"], 6, "cannot be opened as a video"),
        (["video", "absent.mp4", "-m", "m.onnx"], 2, "no output was requested"),
        (["video", "absent.mp4", "-m", "m.onnx", "-o", "o.mp4", "--batch", "9"], 2, "batches of 1 to 4"),
        (["images", "m.onnx", "-m", "m.onnx", "-o", "seen"], 6, "neither an image nor a folder"),
    ],
)
def test_errors_are_words_and_leave_nothing(tmp_path, arguments, code, words):
    write_model(tmp_path / "m.onnx")
    done = serve(*arguments)
    assert done.code == code, done.err
    assert words in done.err and "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
