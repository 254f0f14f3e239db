"""Images decoded in another process: the same pixels and errors, and a crash costs one image only."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest

from rcil.core.image_formats import read_any_rgb
from rcil.core.reading import DataError
from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.sources import image_process, open_source
from rcil_serve.stream.sources.image_process import ImageProcess


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "bad.webp", "c.bmp", "d.tiff"):
        picture = np.random.default_rng(len(name)).integers(0, 256, (24, 32, 3), np.uint8)
        assert cv2.imwrite(str(tmp_path / name), picture)
    return tmp_path


@pytest.fixture
def crashing(monkeypatch):
    """A decoder that dies of files that are called bad."""
    harm = (
        "import os; from rcil_serve.stream.sources import image_process as p; read = p.read_any_rgb; "
        "p.read_any_rgb = lambda path: os.abort() if path.stem == 'bad' else read(path); main()"
    )
    monkeypatch.setattr(image_process, "_CHILD", image_process._CHILD.removesuffix("main()") + harm)


def test_pixels_and_errors_are_the_same(folder):
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:90])
    with closing(ImageProcess()) as images:
        for name in ("a.png", "bad.webp", "c.bmp", "d.tiff"):
            found = images.read(folder / name)
            np.testing.assert_array_equal(found, read_any_rgb(folder / name))
            assert found.flags.writeable
        for name in ("broken.png", "missing.png"):
            with pytest.raises(DataError) as here, closing(ImageProcess()):
                read_any_rgb(folder / name)
            with pytest.raises(DataError) as there:
                images.read(folder / name)
            assert (there.value.message, there.value.hint) == (here.value.message, here.value.hint)
        np.testing.assert_array_equal(images.read(folder / "a.png"), read_any_rgb(folder / "a.png"))


@pytest.mark.usefixtures("crashing")
def test_a_crash_costs_one_image(folder):
    source = open_source(str(folder), isolated=True)
    assert [Path(frame.name).name for frame in source] == ["a.png", "c.bmp", "d.tiff"]
    source.close()
    assert source.counts.corrupt == 1
    assert source.counts.problems == [f"{folder / 'bad.webp'} crashes the decoder (SIGABRT)"]


@pytest.mark.usefixtures("crashing")
def test_nothing_but_crashes_is_an_error(folder):
    with pytest.raises(SourceError, match="no image of"):
        open_source(str(folder / "bad.webp"), isolated=True)


def test_names_may_hold_anything_and_closing_leaves_no_process(folder):
    odd = folder / os.fsdecode(b"line\nbreak \xff.png")
    (folder / "a.png").rename(odd)
    images = ImageProcess()
    assert images.read(odd).shape == (24, 32, 3)
    process = images._process
    images.close()
    assert process.poll() is not None
    images.close()


def test_the_process_imports_little():
    code = (
        "import sys; from rcil_serve.stream.sources import image_process; "
        "print({'pydantic', 'torch', 'onnx', 'onnxruntime', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
