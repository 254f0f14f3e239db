import json

import numpy as np
import pytest
from clips import picture

from rcil_serve.runtime.predictor import Segmentation
from rcil_serve.stream.frames import Frame, OutputError
from rcil_serve.stream.outputs.records import Records
from rcil_serve.stream.pipeline import SegmentedFrame


def seen(index):
    frame = Frame(index, index, index / 25, picture(index, 8, 8), 0.0)
    return SegmentedFrame(frame, Segmentation(np.zeros((8, 8), np.uint8), None), 0.01)


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
