import cv2
import numpy as np
import pytest
from sites import make_site

from rcil.architecture import Architecture
from rcil.checkpoint.metadata import Metadata, class_table
from rcil_export.interface import Interface
from rcil_export.precision.split import split_images
from rcil_export.shapes import InputShape

METADATA = Metadata(architecture=Architecture(), classes=class_table([["background", "ball", "cone"]]))
INTERFACE = Interface(shape=InputShape.of(16, 16), precision="int8")


def split(calibrate, images=None):
    return split_images(calibrate, images, METADATA, INTERFACE)


def plain(folder, count):
    folder.mkdir()
    for index in range(count):
        cv2.imwrite(str(folder / f"{index:03}.png"), np.full((16, 16, 3), index, np.uint8))
    return folder


def test_the_validation_part_of_a_site_judges_and_the_rest_calibrates(tmp_path):
    made = split(make_site(tmp_path / "site", images=8))
    assert made.apart and made.judged.data is not None
    assert {path.parent.name for path in made.judged.files} == {"val"}
    assert {path.parent.name for path in made.feeds.images.files} == {"train"} and made.feeds.count == 8
    assert "8 others judge" in made.note


@pytest.mark.parametrize("count", [6, 10, 200])
def test_a_plain_folder_is_split_in_the_same_way_every_time(tmp_path, count):
    folder = plain(tmp_path / "images", count)
    made, again = split(folder), split(folder)
    judged, calibrated = set(made.judged.files), set(made.feeds.images.files)
    assert made.apart and not judged & calibrated
    assert made.judged.files == again.judged.files and made.feeds.images.files == again.feeds.images.files
    assert len(judged) == min(32, count // 3) and len(calibrated) == min(48, count - count // 3)
    assert [image.name for image in made.judged] == [path.name for path in made.judged.files]


def test_a_site_without_a_validation_part_is_split_too(tmp_path):
    made = split(make_site(tmp_path / "site", splits=("train",), images=9))
    assert made.apart and len(made.judged) == 3 and made.feeds.count == 6 and made.judged.data is not None


def test_a_site_whose_validation_part_is_nearly_all_of_it_is_split(tmp_path):
    site = make_site(tmp_path / "site", splits=("val",), images=12)
    make_site(site, splits=("train",), images=2)
    made = split(site)
    assert made.apart and len(made.judged) == 4 and made.feeds.count == 10


def test_few_images_do_both_and_the_note_says_so(tmp_path):
    made = split(plain(tmp_path / "images", 5))
    assert not made.apart and made.feeds.count == len(made.judged) == 5
    assert "flatters int8" in made.note and "--calibrate" in made.note
    assert not split(None).apart


def test_images_of_a_folder_of_their_own_judge(tmp_path):
    own = plain(tmp_path / "own", 3)
    made = split(plain(tmp_path / "images", 4), own)
    assert made.apart and {path.parent for path in made.judged.files} == {own} and made.feeds.count == 4
    assert split(None, own).apart
    same = split(tmp_path / "images", tmp_path / "images")
    assert not same.apart
