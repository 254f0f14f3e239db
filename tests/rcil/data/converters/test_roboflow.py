import cv2
import numpy as np
import pytest
from exported import put_image

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert

CLASSES = "Pixel Value, Class\n0, background\n1, post\n4, wire\n"


def put(folder, name, mask, classes=CLASSES):
    image = put_image(folder / f"{name}.jpg", *mask.shape)
    (folder / "_classes.csv").write_text(classes)
    cv2.imwrite(str(image.with_name(f"{image.stem}_mask.png")), mask)


@pytest.fixture
def export(tmp_path):
    put(tmp_path / "in/train", "a_jpg.rf.0f", np.array([[0, 1], [4, 4]], np.uint8))
    put(tmp_path / "in/valid", "b", np.zeros((2, 2), np.uint8))
    (tmp_path / "in/README.roboflow.txt").write_text("")
    return tmp_path / "in"


@pytest.mark.parametrize("kind", ["roboflow", "auto"])
def test_splits_and_values(export, tmp_path, kind):
    summary = convert(kind, export, tmp_path / "site")
    assert summary.classes == ("background", "post", "wire")
    assert summary.images == {"train": 1, "val": 1} and summary.background_only == 1
    assert read_mask(tmp_path / "site/masks/train/a_jpg.rf.0f.png").tolist() == [[0, 1], [2, 2]]
    assert (tmp_path / "site/images/val/b.jpg").read_bytes() == (export / "valid/b.jpg").read_bytes()


def test_one_folder_without_splits(export, tmp_path):
    assert convert("roboflow", export / "valid", tmp_path / "site", split="test").images == {"test": 1}
    with pytest.raises(ConfigError, match="record their splits"):
        convert("roboflow", export, tmp_path / "other", split="test")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "train/_classes.csv").write_text("h\n0, a, b\n"), r"_classes\.csv, line 2: '0,a,b'"),
        (lambda root: (root / "train/_classes.csv").write_text("h\n300, a\n"), "line 2: '300,a'"),
        (lambda root: (root / "train/_classes.csv").write_text("h\n0, background\n1, post\n"), "differs from"),
        (lambda root: (root / "train/_classes.csv").write_bytes(b"\xff"), "not a UTF-8 text file"),
        (lambda root: (root / "train/a_jpg.rf.0f.jpg").unlink(), "has no such JPEG or PNG"),
        (lambda root: put(root / "train", "a_jpg.rf.0f", np.full((2, 2), 9, np.uint8)), "holds the value 9"),
        (lambda root: put_image(root / "valid/b.jpg", 3, 2), r"b\.jpg is 2 x 3 pixels, its mask 2 x 2"),
        (lambda root: (root / "valid/b_mask.png").write_bytes(b"x"), r"b_mask\.png is not a PNG"),
        (lambda root: [path.unlink() for path in root.glob("*/*_mask.png")], "no \\*_mask.png"),
        (lambda root: [path.unlink() for path in root.glob("*/_classes.csv")], r"no _classes\.csv in"),
    ],
)
def test_bad_exports(export, tmp_path, damage, message):
    damage(export)
    with pytest.raises(DataError, match=message):
        convert("roboflow", export, tmp_path / "site")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]
