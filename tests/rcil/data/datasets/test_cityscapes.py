import json
import re
from pathlib import Path

import numpy as np
import pytest
from layouts import write_frame

from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.datasets import domains_of, open_dataset
from rcil.data.datasets.cityscapes import CITIES, legacy_cut, read_cityscapes
from rcil.data.protocol import by_domain, domain_steps, parse_split
from rcil.data.types import Sample

FRAMES = {"train": ["zurich_000001_000019", "aachen_000000_000019"], "val": ["lindau_000000_000019"]}
RAW = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12, 26: 13, 27: 14}
RAW |= {28: 15, 31: 16, 32: 17, 33: 18}


def frame(root, split, name, ending="Ids", value=26):
    write_frame(root, split, name, np.full((2, 2), value, np.uint8), ending)


@pytest.fixture
def root(tmp_path):
    for split, names in FRAMES.items():
        for name in names:
            frame(tmp_path, split, name)
    return tmp_path


def test_layout(root):
    data = open_dataset("cityscapes", root)
    train = data.splits["train"]
    assert [s.name for s in train] == [
        "train/aachen/aachen_000000_000019_leftImg8bit",
        "train/zurich/zurich_000001_000019_leftImg8bit",
    ]
    assert [s.domain for s in train] == ["aachen", "zurich"]
    assert [s.domain for s in data.splits["val"]] == ["lindau"]
    assert data.splits.keys() == {"train", "val"}
    assert data.raw_to_id == RAW
    assert read_mask(train[0].mask)[0, 0] == 26 and data.names[data.raw_to_id[26]] == "car"
    assert len(data.classes) == 19 and data.classes[0].colour == (128, 64, 128)


def test_train_ids_are_used_when_complete(root):
    for split, names in FRAMES.items():
        for name in names:
            frame(root, split, name, "TrainIds", 13)
    data = read_cityscapes(root)
    assert data.raw_to_id == {}
    assert data.splits["val"][0].mask.name == "lindau_000000_000019_gtFine_labelTrainIds.png"
    (root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelTrainIds.png").unlink()
    data = read_cityscapes(root)
    assert data.raw_to_id == RAW
    assert data.splits["train"][0].mask.name == "aachen_000000_000019_gtFine_labelIds.png"


def test_the_test_split_is_optional(root):
    frame(root, "test", "berlin_000000_000019", value=3)
    assert [s.domain for s in read_cityscapes(root).splits["test"]] == ["berlin"]


def test_missing_parts(root, tmp_path):
    (root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelIds.png").unlink()
    with pytest.raises(DataError, match=r"1 files .*first .*lindau_000000_000019_gtFine_labelIds\.png\n.*gtFine_train"):
        read_cityscapes(root)
    (root / "leftImg8bit/val/lindau/lindau_000000_000019_leftImg8bit.png").unlink()
    with pytest.raises(DataError, match=r"no <city>/\*_leftImg8bit\.png in .*val"):
        read_cityscapes(root)
    with pytest.raises(DataError, match=r"no folder at .*leftImg8bit/train"):
        read_cityscapes(tmp_path / "nowhere")


def test_city_order_is_the_official_one():
    notes = json.loads((Path(__file__).parents[3] / "golden" / "voc_tasks.json").read_text())["task_notes"]
    numbered = re.findall(r"([a-z]+) (\d+)[, ]", notes["cityscapes_domain"].partition("city order:")[2])
    assert [(city, str(index)) for index, city in enumerate(CITIES)] == numbered


def in_memory(*cities):
    return [Sample(city, Path(city), Path(city), city) for city in cities]


def test_domains_come_in_the_order_of_protocols():
    samples = in_memory("zurich", "bochum", "paris", "bremen", "bochum", "berlin")
    assert domains_of("cityscapes", samples) == ["bremen", "bochum", "zurich", "berlin", "paris"]
    assert domains_of("site", [*samples, Sample("x", Path(), Path())]) == sorted({s.domain for s in samples})


FRAMES_OF = {
    "aachen": 174, "bochum": 96, "bremen": 316, "cologne": 154, "darmstadt": 85, "dusseldorf": 221, "erfurt": 109,
    "hamburg": 248, "hanover": 196, "jena": 119, "krefeld": 99, "monchengladbach": 94, "strasbourg": 365,
    "stuttgart": 196, "tubingen": 144, "ulm": 95, "weimar": 142, "zurich": 122,
    "frankfurt": 267, "lindau": 59, "munster": 174,
}  # fmt: skip
"""Annotated frames of every city as published, training cities first."""


@pytest.mark.parametrize(("split", "leaked"), [("11-5", 71.4), ("11-1", 72.1), ("1-1", 77.8)])
def test_the_legacy_cut_trains_on_most_of_its_test_images(split, leaked):
    """The shares that are known of the research code."""
    pool = [Sample(f"{c}/{i}", Path(), Path(), c) for c, count in FRAMES_OF.items() for i in range(count)]
    trained = set()
    for cities in domain_steps(CITIES, *parse_split(split)):
        own = by_domain(pool, cities)
        train, test = legacy_cut(own)
        assert {s.name for s in train} | {s.name for s in test} == {s.name for s in own}
        assert len(train) == int(0.8 * len(own)) and not set(train) & set(test)
        trained |= set(train)
    _, test = legacy_cut(pool)
    assert len(test) == 695
    assert 100 * len(trained & set(test)) / len(test) == pytest.approx(leaked, abs=0.05)
