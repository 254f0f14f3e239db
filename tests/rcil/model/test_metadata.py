from pathlib import Path

from pydantic import BaseModel

from rcil.model.metadata import colour_of, recorded


class Request(BaseModel):
    data: Path
    crop: tuple[int, int] = (8, 9)
    starts: dict[str, Path | str] = {}


def test_what_is_recorded_is_the_same_wherever_it_lay(tmp_path):
    here, there = (
        recorded(Request(data=folder / "yard", starts={"a": folder / "m.safetensors", "b": "imagenet"}))
        for folder in (tmp_path, Path("/data"))
    )
    assert here == there == {"data": "yard", "crop": [8, 9], "starts": {"a": "m.safetensors", "b": "imagenet"}}


def test_the_voc_colours():
    assert [colour_of(i) for i in (0, 1, 2, 3, 15, 20)] == [
        (0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (192, 128, 128), (0, 64, 128)]  # fmt: skip


def test_all_different():
    assert len({colour_of(i) for i in range(256)}) == 256
