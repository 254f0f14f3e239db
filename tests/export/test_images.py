import cv2
import numpy as np
import pytest
from sites import make_site

from rcil.core.errors import RcilError
from rcil.core.reading import DataError
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.images import CheckImage, common_shape, fit, generated_images, images_for


def test_generated_images_repeat_and_look_like_something():
    first, again = ([image.pixels for image in generated_images(3, (60, 80))] for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not (first[0] == first[1]).all()
    smooth = [cv2.blur(pixels, (5, 5)).astype(float).std() for pixels in first]
    assert min(smooth) > 15  # white noise would be down to 255 / sqrt(12) / 5


def test_generated_images_have_the_size_that_is_taken():
    assert next(iter(images_for(None, InputShape.of(48, 96)))).pixels.shape == (48, 96, 3)


def test_a_site_gives_its_held_out_images_with_masks(tmp_path):
    site = make_site(tmp_path / "site")
    images = images_for(site, None)
    assert len(images) == 6 and images.data.names == ("background", "ball", "cone")
    assert [image.name for image in images] == [f"val_{index}" for index in range(6)]
    assert sorted(np.unique(next(iter(images)).truth)) == [0, 1, 2]
    assert [image.name for image in images_for(site, None, most=2)] == ["val_0", "val_5"]


def test_looking_at_a_site_writes_nothing(tmp_path):
    site = make_site(tmp_path / "site", splits=("",))
    before = sorted(site.rglob("*"))
    assert len(images_for(site, None)) == 6
    assert sorted(site.rglob("*")) == before


def test_any_folder_with_images_will_do(tmp_path):
    cv2.imwrite(str(tmp_path / "one.png"), np.zeros((8, 9, 3), np.uint8))
    (image,) = images_for(tmp_path, None)
    assert image.pixels.shape == (8, 9, 3) and image.truth is None


def test_masks_are_no_photographs_where_the_classes_are_not_named(tmp_path):
    site = make_site(tmp_path / "site")
    (site / "classes.txt").unlink()
    images = images_for(site, None)
    assert images.data is None and len(images) == 12
    assert {image.name for image in images} == {f"{s}/{s}_{index}.jpg" for s in ("train", "val") for index in range(6)}


def test_a_folder_without_images_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no images"):
        images_for(tmp_path, None)


def test_images_are_fitted_into_the_range_of_sizes():
    image = CheckImage("x", np.zeros((100, 300, 3), np.uint8), np.full((100, 300), 7, np.uint8))
    shape = parse_shape(None, "128x128:200x200:256x256")
    fitted = fit(image, shape)
    assert fitted.pixels.shape == (128, 256, 3)
    assert (fitted.truth == 7).all() and fitted.truth.shape == (128, 256)
    assert fit(fitted, shape) is fitted
    assert fit(image, None) is image


def test_the_common_size_of_two():
    ranged = parse_shape(None, "64x64:128x128:256x256")
    assert common_shape(None, ranged) == ranged
    both = common_shape(InputShape.of(96, 128), ranged)
    assert both.usual == (1, 96, 128) and both.static
    with pytest.raises(RcilError, match="no common image size"):
        common_shape(InputShape.of(96, 128), InputShape.of(96, 256))
