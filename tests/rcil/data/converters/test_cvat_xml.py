import numpy as np
import pytest
from exported import box, put_image

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert
from rcil.data.site import read_classes

LABELS = (
    "<meta><job><labels><label><name>wire</name><color>#010203</color></label><label><name>post</name></label>"
    "<label><name>left</name><parent>body</parent></label></labels></job></meta>"
)
MASK = '<mask label="post" rle="1, 2, 0, 1" left="2" top="1" width="2" height="2" z_order="0"/>'


def document(shapes=MASK, *, labels=LABELS, image='id="0" name="a.png" width="8" height="6"'):
    return f'<?xml version="1.0" encoding="utf-8"?>\n<annotations>{labels}<image {image}>{shapes}</image></annotations>'


@pytest.fixture
def read(tmp_path):
    put_image(tmp_path / "in/images/a.png")

    def convert_text(text, name="train/a", **options):
        (tmp_path / "in/annotations.xml").write_text(text)
        summary = convert("cvat", tmp_path / "in", tmp_path / "site", **options)
        return summary, read_mask(tmp_path / "site/masks" / f"{name}.png")

    return convert_text


def test_run_lengths_by_hand(read, tmp_path):
    """Pixels 0 | 1 1 | | 1 of the box from (2, 1) to (3, 2), row by row."""
    summary, mask = read(document())
    assert summary.classes == ("background", "wire", "post") and summary.images == {"train": 1}
    expected = np.zeros((6, 8), np.uint8)
    expected[1, 3] = expected[2, 2] = expected[2, 3] = 2
    np.testing.assert_array_equal(mask, expected)
    assert [c.colour for c in read_classes(tmp_path / "site")][1] == (1, 2, 3)


def test_shapes_by_z_order(read):
    shapes = (
        '<polygon label="post" points="1.0,1.0;3.9,1.0;3.9,3.9;1.0,3.9" z_order="2"/>'
        '<box label="wire" xtl="0" ytl="0" xbr="4.5" ybr="2.5" z_order="1"/><points label="post" points="1,1"/>'
    )
    summary, mask = read(document(shapes))
    expected = box(0, 2, 0, 4)
    expected[1:4, 1:4] = 2
    np.testing.assert_array_equal(mask, expected)
    assert summary.skipped == {"points": 1}


def test_turned_boxes_and_ellipses(read):
    shapes = (
        '<box label="wire" xtl="1.5" ytl="2.5" xbr="5.5" ybr="2.5" rotation="90"/>'
        '<ellipse label="post" cx="6.5" cy="2.5" rx="0.3" ry="1.4"/>'
    )
    _, mask = read(document(shapes))
    np.testing.assert_array_equal(mask, box(0, 4, 3, 3) + box(1, 3, 6, 6, 2))


def test_subsets_and_used_labels(read, tmp_path):
    put_image(tmp_path / "in/images/night/b.png")
    image = 'id="0" name="b.png" subset="night"'
    _, mask = read(document(image=image, labels=""), name="night/b")
    assert mask.max() == 1
    with pytest.raises(ConfigError, match="record their splits"):
        convert("cvat", tmp_path / "in/annotations.xml", tmp_path / "other", split="val")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotations>", "not valid XML"),
        ("<a/>", "holds <a>, not <annotations>"),
        ("<annotations/>", "lists no images"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><annotations/>', "declares a document type"),
        (document(image='name="none.png"'), r"names the image 'none\.png'"),
        (document(image='name="../a.png"'), "not a path below"),
        (document(image='name="a.png" width="9" height="6"'), "8 x 6 pixels, annotated as 9 x 6"),
        (document(image='name="a.png" width="x"'), "'x' is not a number"),
        (document(MASK.replace("post", "posts")), "uses the label 'posts'"),
        (document(MASK.replace("1, 2, 0, 1", "1, 2")), "a.png, mask: the run lengths do not cover 2 x 2"),
        (document(MASK.replace("1, 2, 0, 1", "1, -2")), "run lengths are unreadable"),
        (document(MASK.replace('left="2"', 'left="7"')), "reaches beyond the image"),
        (document(MASK.replace('left="2"', "")), "mask: '' is not a number"),
        (document('<polygon label="post" points="1,1;2"/>'), "points are unreadable"),
        (document('<polygon label="post" points="1,nan;2,2;3,3"/>'), "cannot be filled"),
        (document('<ellipse label="post" cx="inf" cy="1" rx="1" ry="1"/>'), "cannot be filled"),
    ],
)
def test_bad_files(read, tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(text)
    assert [found.name for found in tmp_path.iterdir()] == ["in"]
