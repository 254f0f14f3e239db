import subprocess
import sys

import cv2
import numpy as np
import pytest
from networks import at_step, small_arch

from rcil.checkpoint.file import save
from rcil.checkpoint.metadata import Metadata, class_table


@pytest.fixture
def files(tmp_path):
    model = at_step(small_arch(), 0)
    save(tmp_path / "m.safetensors", model, Metadata(architecture=model.arch, classes=class_table([list(model.names)])))
    cv2.imwrite(str(tmp_path / "image.png"), np.full((40, 60, 3), (10, 20, 30), np.uint8))
    mask = np.zeros((40, 60), np.uint8)
    mask[10:20, 10:20] = 1
    cv2.imwrite(str(tmp_path / "mask.png"), mask)
    return tmp_path


def overlay(folder, *options, image="image.png", mask="mask.png"):
    command = [sys.executable, "-m", "rcil_serve", "overlay", image, mask, "--model", "m.safetensors", "-o", "out.png"]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=folder)


def test_overlay(files):
    done = overlay(files, "--alpha", "1", "--no-legend")
    assert done.returncode == 0, done.stderr
    drawn = cv2.imread(str(files / "out.png"))[..., ::-1]
    assert drawn.shape == (40, 60, 3)
    assert drawn[15, 15].tolist() == [128, 0, 0]
    assert drawn[0, 0].tolist() == [30, 20, 10], "colours stay in order"


def test_legend_is_added_below(files):
    assert overlay(files).returncode == 0
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
    done = overlay(files)
    assert done.returncode == 6
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (files / "out.png").exists()


def test_serving_imports_no_torch(files):
    script = (
        "import sys; sys.argv = ['rcil-serve', *sys.argv[1:]]\n"
        "from rcil_serve.cli import app\n"
        "try: app()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert 'torch' not in sys.modules and 'cv2' in sys.modules"
    )
    arguments = ["overlay", "image.png", "mask.png", "--model", "m.safetensors", "-o", "out.png"]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, cwd=files)
