import os

import numpy as np
import pytest
from layouts import write_ade

from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.datasets import READERS, open_dataset
from rcil.data.datasets.ade import read_ade


@pytest.fixture
def root(tmp_path):
    mask = np.array([[0, 1, 150]] * 2, np.uint8)
    return write_ade(tmp_path, train=[mask, mask], val=[mask])


def table(names):
    rows = [f"{i}\t0.1\t10\t5\t1\t{name}" for i, name in enumerate(names, 1)]
    return "\n".join(["Idx\tRatio\tTrain\tVal\tStuff\tName", *rows]) + "\n"


@pytest.mark.parametrize("above", [False, True])
def test_layout(root, above):
    data = open_dataset("ade", root.parent if above else root)
    assert [s.name for s in data.splits["train"]] == ["training/ADE_train_00000001", "training/ADE_train_00000002"]
    assert [s.name for s in data.splits["val"]] == ["validation/ADE_val_00000001"]
    assert read_mask(data.splits["val"][0].mask)[0].tolist() == [0, 1, 150]
    assert len(data.classes) == 151 and data.raw_to_id == {}
    assert data.names[:2] == ("background", "class_1") and data.names[150] == "class_150"


def test_names_take_the_first_synonym_and_stay_unique(root):
    rows = ["wall", "building, edifice", "screen, silver screen", "screen, CRT screen"]
    (root / "objectInfo150.txt").write_text(table(rows + [f"thing {i}; x" for i in range(5, 151)]))
    names = read_ade(root).names
    assert names[:6] == ("background", "wall", "building", "screen", "screen, CRT screen", "thing 5")


@pytest.mark.parametrize(
    "text", ["", table(["wall"]), table(["w"] * 150).replace("Name", "Nom"), "Name\n" * 150 + "\t\n"]
)
def test_a_bad_table(root, text):
    (root / "objectInfo150.txt").write_text(text)
    with pytest.raises(DataError, match=r"objectInfo150\.txt is not"):
        read_ade(root)


def test_a_folder_without_permission(tmp_path, monkeypatch):
    def forbidden(root):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(READERS, "ade", forbidden)
    with pytest.raises(DataError, match=rf"cannot read {tmp_path}: Permission denied"):
        open_dataset("ade", tmp_path)


def test_missing_parts(root, tmp_path):
    with pytest.raises(DataError, match=r"no folder at .*images/training\n.*ADEChallengeData2016\.zip"):
        read_ade(tmp_path / "nowhere")
    (root / "annotations/validation/ADE_val_00000001.png").unlink()
    with pytest.raises(DataError, match=r"1 files .*first .*annotations/validation/ADE_val_00000001\.png"):
        read_ade(root)
    (root / "images/validation/ADE_val_00000001.jpg").unlink()
    with pytest.raises(DataError, match="names no images"):
        read_ade(root)


def test_a_name_that_is_not_text(root):
    image = next((root / "images" / "training").glob("*.jpg"))
    mask = root / "annotations" / "training" / f"{image.stem}.png"
    for path in (image, mask):
        path.rename(path.with_stem(os.fsdecode(b"\xff")))
    with pytest.raises(DataError, match=r"\\xff\.jpg is not UTF-8"):
        read_ade(root)
