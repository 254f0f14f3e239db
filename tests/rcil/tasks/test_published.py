from pathlib import Path

import pytest

from rcil.methods import METHODS
from rcil.presets import preset_names
from rcil.tasks.load import load_task
from rcil.tasks.published import PUBLISHED, published_miou


def test_every_row_is_a_method_on_a_preset():
    assert PUBLISHED.keys() <= set(preset_names())
    assert {method for rows in PUBLISHED.values() for method in rows} <= METHODS.keys()


@pytest.mark.parametrize(
    ("preset", "method", "expected"),
    [
        ("voc-15-1-overlapped", "rcil", 59.4),
        ("voc-15-1-overlapped", "rcil-official", 59.4),
        ("voc-10-1-overlapped", "plop", 30.5),
        ("ade-50-50", "mib", 29.3),
        ("ade-100-5", "joint", 38.9),
        ("cityscapes-1-1", "lwf-mc", 31.4),
        ("voc-15-1-overlapped", "rcil-plus", None),
        ("voc-15-1-disjoint", "rcil", None),
        ("cityscapes-1-1-clean", "rcil", None),
    ],
)
def test_numbers_of_the_paper(preset, method, expected):
    assert published_miou(load_task(Path(preset)), method) == expected


def test_other_steps_under_the_same_name_are_another_task():
    changed = load_task(Path("voc-15-1-overlapped"), ["protocol.setting=disjoint"])
    assert published_miou(changed, "rcil") is None
    moved = load_task(Path("voc-15-1-overlapped"), ["data.root=elsewhere", "training.batch=12", "seed=3"])
    assert published_miou(moved, "rcil") == 59.4
