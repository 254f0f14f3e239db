import cv2
import numpy as np
import pytest
from sites import make_site

from rcil.core.images import write_image
from rcil.core.reading import DataError
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape
from rcil_export.precision.feeds import find_feeds, split_images

METADATA = Metadata(architecture=Architecture(), classes=class_table([["background", "ball", "cone"]]))
INTERFACE = Interface(shape=InputShape.of(16, 16), precision="int8")


def test_uint8_feeds_have_the_exported_size_and_the_models_colour_order(tmp_path):
    for index in range(3):
        write_image(tmp_path / f"{index}.png", np.full((20, 30, 3), (10 * index, 1, 2), np.uint8))
    bgr = METADATA.model_copy(update={"colour_order": "BGR"})
    batches = list(find_feeds(tmp_path, bgr, Interface(shape=InputShape.of(8, 12, batch=2))))
    assert [batch["image"].shape for batch in batches] == [(2, 8, 12, 3)] * 2
    assert batches[0]["image"].dtype == np.uint8
    assert batches[1]["image"][:, 0, 0].tolist() == [[2, 1, 20], [2, 1, 0]]  # filled up with the first image


def test_float_feeds_are_normalised_planes(tmp_path):
    write_image(tmp_path / "grey.png", np.full((8, 8, 3), 51, np.uint8))
    (batch,) = find_feeds(tmp_path, METADATA, Interface(shape=InputShape.of(8, 8), input="float"))
    expected = (0.2 - np.array(METADATA.mean)) / np.array(METADATA.std)
    assert batch["image"].dtype == np.float32
    np.testing.assert_allclose(batch["image"][0, :, 3, 3], expected, rtol=1e-6)


def test_masks_of_a_site_are_not_images_and_many_images_are_thinned_evenly(tmp_path):
    for index in range(9):
        write_image(tmp_path / "images" / f"{index}.png", np.zeros((4, 4, 3), np.uint8))
        write_image(tmp_path / "masks" / f"{index}.png", np.zeros((4, 4), np.uint8))
    feeds = find_feeds(tmp_path, METADATA, Interface(shape=InputShape.of(4, 4)), limit=3)
    assert [image.name for image in feeds.images] == ["0.png", "4.png", "8.png"]


def test_generated_feeds_use_all_pixel_values_and_repeat(tmp_path):
    feeds = find_feeds(None, METADATA, Interface(shape=InputShape.of(16, 24)))
    first, again = list(feeds), list(feeds)
    assert feeds.root is None and len(first) == len(feeds) == 3
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a["image"], b["image"])
        assert (a["image"].min(), a["image"].max()) == (0, 255)
    assert not np.array_equal(first[0]["image"], first[1]["image"])


def test_empty_and_missing_folders_and_broken_images_are_named(tmp_path):
    interface = Interface(shape=InputShape.of(8, 8))
    with pytest.raises(DataError, match="holds no images"):
        find_feeds(tmp_path, METADATA, interface)
    with pytest.raises(DataError, match="nowhere"):
        find_feeds(tmp_path / "nowhere", METADATA, interface)
    (tmp_path / "broken.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"broken\.png"):
        list(find_feeds(tmp_path, METADATA, interface))


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
