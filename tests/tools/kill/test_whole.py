"""A file that is cut off anywhere near its end is noticed, whatever its kind."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from clips import make_clip, picture
from served import FIXED, write_model

from rcil.core.documents import write_json
from rcil.core.images import write_image
from rcil.report.html import write_page
from rcil.training.state import write_log, write_state
from rcil_serve.stream.frames import SourceInfo
from rcil_serve.stream.outputs.movie import Movie
from tools.kill.models import write_checkpoint
from tools.kill.whole import CHECKS, frames_of, is_temporary, problem_of, problems_in


def write_masks(path):
    from fractions import Fraction

    movie = Movie(path, SourceInfo("", (16, 16), Fraction(25), Fraction(1, 25)), lossless=True)
    for index in range(12):
        movie.write(np.random.default_rng(index).integers(0, 255, (16, 16), dtype=np.uint8), SimpleNamespace(pts=index))
    movie.finish()


MAKERS = {
    ".safetensors": lambda path: write_checkpoint(path, 0),
    ".pt": lambda path: write_state(path, {"epoch": 1, "rows": list(range(50))}),
    ".onnx": lambda path: write_model(path, FIXED),
    ".json": lambda path: write_json(path, {"numbers": list(range(50))}),
    ".jsonl": lambda path: path.write_text("".join(json.dumps({"frame": n}) + "\n" for n in range(9))),
    ".csv": lambda path: write_log(path, [{"epoch": n, "loss": 0.25} for n in range(9)]),
    ".html": lambda path: write_page(path, "A page", "", []),
    ".png": lambda path: write_image(path, picture(0, 48, 64)),
    ".jpg": lambda path: write_image(path, picture(0, 48, 64)),
    ".mp4": lambda path: make_clip(path, 12),
    ".mkv": write_masks,
}


def test_every_kind_is_tried():
    assert MAKERS.keys() == CHECKS.keys() - {".yaml"}, "a task is compared as a whole, as any part of it may be YAML"


@pytest.mark.parametrize("kind", MAKERS)
def test_a_file_that_is_cut_off_is_noticed(kind, tmp_path):
    path = tmp_path / f"a{kind}"
    MAKERS[kind](path)
    assert problem_of(path) is None
    whole = path.read_bytes()
    for kept in (len(whole) - 12, len(whole) // 2, 0):
        path.write_bytes(whole[:kept])
        assert problem_of(path) is not None, f"{kept} of {len(whole)} bytes"


def test_only_what_has_its_final_name_must_be_whole(tmp_path):
    for name in (".a.json.abcdefgh.part", "seen.part.mp4", ".work.part/a.json", "step0/events.out.tfevents.1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{")
    assert problems_in(tmp_path) == []
    (tmp_path / "step0" / "a.json").write_text("{")
    (tmp_path / "odd.xyz").write_text("")
    assert [problem.split(":")[0] for problem in problems_in(tmp_path)] == ["odd.xyz", "step0/a.json"]


def test_a_task_that_is_no_mapping_is_noticed(tmp_path):
    (tmp_path / "task.yaml").write_text("na")
    assert problem_of(tmp_path / "task.yaml") == "no mapping"


def test_frames_of_a_video_without_its_end(tmp_path):
    path = tmp_path / "a.mp4"
    make_clip(path, 60, options={"movflags": "frag_every_frame+empty_moov"})
    whole = frames_of(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    part = frames_of(path, cut=True)
    assert len(whole) == 60 and 0 < len(part) < 60 and part[:-1] == whole[: len(part) - 1]
    assert not is_temporary(path.relative_to(tmp_path))
