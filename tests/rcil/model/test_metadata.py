from pathlib import Path

from pydantic import BaseModel

from rcil.core.palette import colours_for
from rcil.model.metadata import class_table, recorded


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


def test_a_class_table_has_the_colours_of_its_names():
    table = class_table([["background", "road"], ["car"]])
    assert [(c.name, c.id, c.step) for c in table] == [("background", 0, 0), ("road", 1, 0), ("car", 2, 1)]
    assert tuple(c.colour for c in table) == colours_for(["background", "road", "car"])
