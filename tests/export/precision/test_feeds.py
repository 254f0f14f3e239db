import numpy as np
import pytest

from rcil.core.images import write_image
from rcil.core.reading import DataError
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape
from rcil_export.precision.feeds import find_feeds

METADATA = Metadata(architecture=Architecture(), classes=class_table([["background", "a"]]))


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
    assert feeds.generated and len(first) == len(feeds) == 3
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
