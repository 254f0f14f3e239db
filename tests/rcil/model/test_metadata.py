from pathlib import Path

from pydantic import BaseModel

from rcil.model.metadata import recorded


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
