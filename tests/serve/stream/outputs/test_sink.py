import json
from dataclasses import replace

import numpy as np
import pytest
from clips import picture

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.runtime.painter import Painter
from rcil_serve.runtime.predictor import Segmentation
from rcil_serve.stream.frames import Frame, OutputError
from rcil_serve.stream.outputs.sink import Overlays, Records, Smoother
from rcil_serve.stream.pipeline import SegmentedFrame


def shown(values, frames):
    smoother = Smoother(frames)
    return [int(smoother.smooth(np.full((2, 2), value, np.uint8))[1, 1]) for value in values]


def test_a_class_is_shown_after_so_many_equal_frames():
    assert shown([0, 1, 0, 1, 1, 1, 2, 1, 2, 2, 2, 2], 3) == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert shown([0, 1, 2, 1, 2], 3) == [0, 0, 0, 0, 0]
    assert shown([0, 1, 2], 1) == [0, 1, 2]


def test_pixels_are_smoothed_by_themselves_and_inputs_stay():
    smoother = Smoother(2)
    first, second = np.array([[0, 0]], np.uint8), np.array([[1, 0]], np.uint8)
    smoother.smooth(first)
    assert smoother.smooth(second).tolist() == [[0, 0]]
    assert smoother.smooth(second).tolist() == [[1, 0]]
    assert first.tolist() == [[0, 0]] and second.tolist() == [[1, 0]]
    assert smoother.smooth(np.ones((3, 3), np.uint8)).shape == (3, 3)
    with pytest.raises(ConfigError, match="over 0 frames"):
        Smoother(0)


def seen(index):
    frame = Frame(index, index, index / 25, picture(index, 8, 8), 0.0)
    return SegmentedFrame(frame, Segmentation(np.zeros((8, 8), np.uint8), None), 0.01)


def test_everybody_after_the_painter_sees_the_smoothed_mask():
    """The video, the mask files, the records and the live view."""
    overlays = Overlays(Painter(class_table([["background", "ball"]]), 1.0), 2)
    results = []
    for index, row in enumerate((0, 1, 1)):
        given = seen(index)
        painted = overlays.paint(replace(given, found=given.found._replace(mask=np.full((8, 8), row, np.uint8))))
        results.append((int(painted.found.mask.max()), not np.array_equal(painted.drawn, given.frame.pixels)))
    assert results == [(0, False), (0, False), (1, True)]
    assert Overlays(None, 1).paint(seen(0)).drawn is None


def test_the_lines_of_an_earlier_run_stay_until_there_are_new_ones(tmp_path):
    path = tmp_path / "frames.jsonl"
    path.write_text("{}\n")
    records = Records(path, ["background"])
    records.write(seen(0), np.array([1.0]), 0.0)
    assert path.read_text() == "{}\n"
    records.finish()
    assert [json.loads(line)["frame"] for line in path.read_text().splitlines()] == [0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["frames.jsonl"]


def test_after_an_error_the_lines_stay_under_their_temporary_name(tmp_path):
    for frames in (0, 2):
        records = Records(tmp_path / "frames.jsonl", ["background"])
        for index in range(frames):
            records.write(seen(index), np.array([1.0]), 0.0)
        records.abandon()
        assert [entry.name for entry in tmp_path.iterdir()] == ["frames.part.jsonl"] * bool(frames)
    assert len((tmp_path / "frames.part.jsonl").read_text().splitlines()) == 2


def test_a_place_that_is_taken_is_named(tmp_path):
    (tmp_path / "frames.jsonl").mkdir()
    records = Records(tmp_path / "frames.jsonl", ["background"])
    records.write(seen(0), np.array([1.0]), 0.0)
    with pytest.raises(OutputError, match=r"cannot write .*frames\.jsonl: Is a directory"):
        records.finish()
