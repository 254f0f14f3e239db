import numpy as np
import pytest

from rcil.core.images import write_image
from rcil.core.mask_classes import names_chunk
from rcil.core.masks import write_mask
from rcil.core.reading import DataError
from rcil.model.metadata import class_table
from rcil_serve.images.overlay import draw_overlay

CLASSES = class_table([["background", "road", "car"]])
ROAD, CAR = (list(c.colour) for c in CLASSES[1:])
IMAGE = np.full((4, 6, 3), 9, np.uint8)


@pytest.fixture
def draw(tmp_path):
    """Draws a mask of one row of ids, written with the given names."""

    def drawn(ids, names=None, classes=CLASSES):
        write_image(tmp_path / "image.png", IMAGE)
        mask = np.broadcast_to(np.array(ids, np.uint8), (4, 6)).copy()
        write_mask(tmp_path / "mask.png", mask, chunk=names_chunk(names) if names else b"")
        picture = draw_overlay(tmp_path / "image.png", tmp_path / "mask.png", classes, 1.0, with_legend=False)
        return picture[0].tolist()

    return drawn


def test_a_mask_without_names_has_the_ids_of_the_model(draw):
    assert draw([0, 1, 2, 255, 0, 1]) == [[9] * 3, ROAD, CAR, [9] * 3, [9] * 3, ROAD]


def test_names_decide_where_a_mask_records_them(draw):
    names = {0: "car", 1: "background", 2: "road", 7: "a class that does not occur"}
    assert draw([0, 1, 2, 255, 0, 1], names) == [CAR, [9] * 3, ROAD, [9] * 3, CAR, [9] * 3]


def test_a_mask_of_a_site_has_the_names_of_the_site(tmp_path):
    image, mask = (tmp_path / kind / "train" / "cam" / "a.png" for kind in ("images", "masks"))
    write_image(image, IMAGE)
    write_mask(mask, np.full((4, 6), 2, np.uint8))
    (tmp_path / "classes.txt").write_text("background\ncar\nroad\n")
    assert draw_overlay(image, mask, CLASSES, 1.0, with_legend=False)[0].tolist() == [ROAD] * 6
    (tmp_path / "classes.txt").write_text("background\ncar\ncone\n")
    with pytest.raises(DataError, match=r"holds the class 2 \(cone\), which the model lacks"):
        draw_overlay(image, mask, CLASSES, 1.0, with_legend=False)


@pytest.mark.parametrize(
    ("ids", "names", "message"),
    [
        (
            [0, 1, 2, 3, 9, 9],
            None,
            "mask.png holds the classes 3, 9, which the model lacks: 0 background, 1 road, 2 car",
        ),
        ([0, 1, 2, 2, 2, 2], {0: "background", 1: "road", 2: "cone"}, "holds the class 2 (cone), which"),
        ([0, 1, 4, 4, 4, 4], {0: "background", 1: "road"}, "holds the class 4, which"),
    ],
)
def test_classes_of_another_model_are_refused(draw, ids, names, message):
    with pytest.raises(DataError) as raised:
        draw(ids, names)
    assert message in raised.value.message and "--model" in raised.value.hint
