import cv2
import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert
from rcil.data.site import read_classes

LABELS = (
    "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncar:250,50,83::\nsign: left:51,221,255::\nignore:1,2,3::\n"
)
COLOURS = [(0, 0, 0), (250, 50, 83), (51, 221, 255), (1, 2, 3)]


def save(path, rgb):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.asarray(rgb, np.uint8)[:, :, ::-1])


@pytest.fixture
def export(tmp_path):
    export = tmp_path / "export"
    save(export / "JPEGImages" / "f1.JPG", np.zeros((2, 2, 3)))
    save(export / "JPEGImages" / "cam" / "f.2.png", np.zeros((2, 2, 3)))
    save(export / "SegmentationClass" / "f1.png", [[COLOURS[0], COLOURS[1]], [COLOURS[2], COLOURS[3]]])
    save(export / "SegmentationClass" / "cam" / "f.2.png", [[COLOURS[0]] * 2] * 2)
    (export / "labelmap.txt").write_text(LABELS)
    lists = export / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("f1\n")
    (lists / "val.txt").write_text("cam/f.2\n\n")
    return export


def test_colours_become_ids(export, tmp_path):
    summary = convert("cvat", export, tmp_path / "site")
    assert summary.classes == ("background", "car", "sign: left")
    assert summary.images == {"train": 1, "val": 1} and summary.background_only == 1
    assert read_mask(tmp_path / "site/masks/train/f1.png").tolist() == [[0, 1], [2, 255]]
    assert (tmp_path / "site/images/train/f1.jpg").read_bytes() == (export / "JPEGImages/f1.JPG").read_bytes()
    assert (tmp_path / "site/masks/val/cam/f.2.png").is_file()
    assert [(c.name, c.colour) for c in read_classes(tmp_path / "site")] == list(
        zip(summary.classes, COLOURS, strict=False)
    )


def test_palette_masks_go_by_their_colours(export, tmp_path):
    import struct
    import zlib

    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0),
        b"PLTE": bytes([51, 221, 255, 0, 0, 0, 250, 50, 83]),
        b"IDAT": zlib.compress(b"\0\0\1\0\2\1"),
        b"IEND": b"",
    }
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks.items():
        data += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    (export / "SegmentationClass" / "f1.png").write_bytes(data)
    convert("cvat", export, tmp_path / "site")
    assert read_mask(tmp_path / "site/masks/train/f1.png").tolist() == [[2, 0], [1, 0]]


def test_images_elsewhere(export, tmp_path):
    (export / "JPEGImages").rename(tmp_path / "photos")
    with pytest.raises(DataError, match=r"no folder at .*JPEGImages\nExport with images"):
        convert("cvat", export, tmp_path / "site")
    assert convert("cvat", export, tmp_path / "site", images=tmp_path / "photos").images == {"train": 1, "val": 1}


def test_unknown_colours_are_named_and_counted(export, tmp_path):
    save(export / "SegmentationClass" / "f1.png", [[COLOURS[0], (9, 8, 7)], [(9, 8, 7), COLOURS[1]]])
    with pytest.raises(DataError, match=r"f1\.png: 2 pixels have the colour 9,8,7\n.*labelmap"):
        convert("cvat", export, tmp_path / "site")


def test_black_is_unknown_when_background_has_a_colour(export, tmp_path):
    (export / "labelmap.txt").write_text(LABELS.replace("background:0,0,0", "background:4,4,4"))
    with pytest.raises(DataError, match="have the colour 0,0,0"):
        convert("cvat", export, tmp_path / "site")


def test_black_is_background_when_none_is_listed(export, tmp_path):
    (export / "labelmap.txt").write_text(LABELS.replace("background:0,0,0::\n", ""))
    convert("cvat", export, tmp_path / "site")
    assert read_mask(tmp_path / "site/masks/train/f1.png").tolist() == [[0, 1], [2, 255]]


@pytest.mark.parametrize("line", ["car", "car:1,2::", "car:1,2,256::", "car:a,b,c::", "van:250,50,83::", "car:7,7,7::"])
def test_bad_label_maps(export, tmp_path, line):
    (export / "labelmap.txt").write_text(f"{LABELS}{line}\n")
    with pytest.raises(DataError, match=rf"labelmap\.txt, line 6: '{line}'"):
        convert("cvat", export, tmp_path / "site")


def test_numbers_that_python_does_not_read(export, tmp_path):
    """Space that is no space to int, and more digits than it takes."""
    (export / "labelmap.txt").write_text(f"{LABELS}car:{'1' * 5000},2,3::\n")
    with pytest.raises(DataError, match="line 6"):
        convert("cvat", export, tmp_path / "site")
    (export / "labelmap.txt").write_text(LABELS.replace("250,50,83", "250,50,83\x1f"))
    convert("cvat", export, tmp_path / "site")


def test_sizes_must_agree(export, tmp_path):
    save(export / "SegmentationClass" / "f1.png", np.zeros((3, 2, 3)))
    with pytest.raises(DataError, match=r"f1\.JPG is 2 x 2 pixels, its mask 2 x 3"):
        convert("cvat", export, tmp_path / "site")


def test_missing_files(export, tmp_path):
    (export / "SegmentationClass" / "f1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"f1\.png is not an image that can be decoded"):
        convert("cvat", export, tmp_path / "site")
    (export / "SegmentationClass" / "f1.png").unlink()
    with pytest.raises(DataError, match=r"train\.txt names 'f1', but there is no"):
        convert("cvat", export, tmp_path / "site")
    (export / "ImageSets/Segmentation/train.txt").write_text("../f1\n")
    with pytest.raises(DataError, match="not a path below"):
        convert("cvat", export, tmp_path / "site")
    (export / "ImageSets/Segmentation/train.txt").unlink()
    (export / "JPEGImages/cam/f.2.png").unlink()
    with pytest.raises(DataError, match=r"names 'cam/f\.2'"):
        convert("cvat", export, tmp_path / "site")
    (export / "ImageSets/Segmentation/val.txt").write_text("\n")
    with pytest.raises(DataError, match="name no images"):
        convert("cvat", export, tmp_path / "site")


def test_splits_are_refused(export, tmp_path):
    with pytest.raises(ConfigError, match="record their splits"):
        convert("cvat", export, tmp_path / "site", split="val")


@pytest.mark.parametrize(("asked", "split"), [(None, "train"), ("val", "val")])
def test_images_of_no_subset_go_where_they_are_wanted(export, tmp_path, asked, split):
    lists = export / "ImageSets" / "Segmentation"
    (lists / "train.txt").rename(lists / "default.txt")
    (lists / "val.txt").unlink()
    assert convert("cvat", export, tmp_path / "site", split=asked).images == {split: 1}
