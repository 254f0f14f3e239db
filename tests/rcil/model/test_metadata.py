from pathlib import Path

import pytest
from networks import small_arch
from pydantic import BaseModel

from rcil.core.palette import colours_for
from rcil.model.metadata import LineageEntry, Metadata, class_table, recorded, scale_notice


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


def trained(*configs):
    lineage = tuple(LineageEntry(step=0, source="step", config=config) for config in configs)
    return Metadata(architecture=small_arch(), classes=class_table([["background", "a"]]), lineage=lineage)


@pytest.mark.parametrize(
    ("configs", "scale"),
    [
        ([], 1.0),
        ([{}], 1.0),
        ([{"data": {"root": "yard", "scale": 0.5}}], 0.5),
        ([{"data": {"scale": 0.5}}, {"data": "yard", "scale": 0.75}, {}], 0.75),
        ([{"scale": 0.75}, {"data": {"scale": 1}}], 1.0),
        ([{"scale": 0.5}, {"data": {"size": 32}}], 0.5),
        ([{"scale": "half"}, {"scale": 0}, {"scale": -1}, {"scale": float("nan")}, {"scale": 99}, {"data": []}], 1.0),
    ],
)
def test_the_scale_of_the_last_training(configs, scale):
    """`rcil train` and `rcil add-class` record it in different places; folds, exports and imports do not."""
    assert trained(*configs).training_scale == scale


def test_a_scale_other_than_1_is_told():
    half, whole = trained({"scale": 0.5}), trained()
    assert scale_notice([]) == scale_notice([whole]) == []
    assert scale_notice([half, half]) == ["scale 0.5 as in the model's training; change with --scale"]
    assert scale_notice([half, whole]) == ["scale 0.5 and 1 as in the model's training; change with --scale"]
