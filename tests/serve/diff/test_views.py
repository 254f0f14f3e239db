import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.diff.panels import CAPTION, GAP, Panels, scaled
from rcil_serve.diff.transitions import FORGOTTEN, KINDS, Codes, common_classes
from rcil_serve.diff.views import SWEEP_SECONDS, fitting, line_at, open_view
from rcil_serve.stream.frames import Frame

SHARES = np.eye(len(KINDS))[0]


def grey_frame(size, time=0.0):
    return Frame(0, 0, time, np.full((*size, 3), 100, np.uint8), 0.0)


def half_forgotten(yard, size):
    """The old model sees a ball in the upper half, the new one sees nothing."""
    old = np.zeros(size, np.uint8)
    old[: size[0] // 2] = 1
    return yard.codes.of(old, np.zeros(size, np.uint8))


@pytest.mark.parametrize("size", [(48, 64), (161, 209), (1080, 1920), (2160, 3840), (641, 480), (100, 1000)])
@pytest.mark.parametrize("name", ["side", "wipe"])
def test_pictures_have_the_promised_size(yard, size, name):
    view = open_view(name, size, Panels(yard.classes, yard.codes), yard.classes, ("old", "new"))
    drawn = view.draw(grey_frame(size), half_forgotten(yard, size), SHARES)
    assert drawn.shape == (*view.size, 3) and drawn.dtype == np.uint8
    assert view.size[0] % 2 == view.size[1] % 2 == 0 and view.size[1] <= 1920
    shown, width = fitting(size, 320, 637)
    assert shown / width == pytest.approx(size[0] / size[1], abs=2 / width)


def test_the_three_panels_show_old_new_and_changes(yard):
    size = (60, 640)
    panels = Panels(yard.classes, yard.codes, alpha=1.0)
    drawn = panels.three(grey_frame(size).pixels, half_forgotten(yard, size), size)
    old, new, changes = (drawn[:, left : left + 640] for left in (0, 640 + GAP, 2 * (640 + GAP)))
    assert (old[:30] == yard.classes.table[3].colour).all() and (old[30:] == 100).all()
    assert (new == 100).all()
    assert (changes[30:] == 55).all(), "what stays is dim"
    expected = 0.75 * np.array(KINDS[FORGOTTEN].colour) + 0.25 * 55
    np.testing.assert_allclose(changes[:30], np.broadcast_to(expected, (30, 640, 3)), atol=1)


def test_a_wipe_is_old_on_the_left_and_new_on_the_right(yard):
    size = (200, 640)
    view = open_view("wipe", size, Panels(yard.classes, yard.codes, alpha=1.0), yard.classes, ("old", "new"))
    time = SWEEP_SECONDS / 4
    drawn = view.draw(grey_frame(size, time), half_forgotten(yard, size), SHARES)[CAPTION : CAPTION + 200]
    assert (drawn[10:90, 10:150] == yard.classes.table[3].colour).all()
    assert (drawn[10:90, 170:] == 100).all()
    assert (drawn[10:90, 160] == 255).all(), "the line"
    assert (drawn[99, 200:] == KINDS[FORGOTTEN].colour).all(), "the change has an outline"
    assert (drawn[101:, 200:] == 100).all(), "on its inner side"


def test_the_line_moves_to_and_fro():
    places = [line_at(SWEEP_SECONDS * part, 400) for part in (0, 0.25, 0.5, 0.999999, 1.25, 1.5, 2, 2.25)]
    assert places == [1, 100, 200, 399, 300, 200, 1, 100]


def test_very_many_classes_leave_room_for_the_picture():
    names = [f"class {row}" for row in range(300)]
    classes = common_classes(class_table([["background", *names]]), class_table([["background", *names, "extra"]]))
    codes = Codes(classes)
    view = open_view("side", (240, 320), Panels(classes, codes), classes, ("old", "new"))
    mask = np.arange(240 * 320, dtype=np.int32).reshape(240, 320) % 300
    drawn = view.draw(grey_frame((240, 320)), codes.of(mask, mask[::-1]), SHARES)
    assert drawn.shape[:2] == view.size == (CAPTION + 240 + 3 * CAPTION + CAPTION, 968)


def test_codes_are_never_interpolated(yard):
    codes = np.random.default_rng(0).choice([0, 35], (90, 120)).astype(np.uint8)
    image = np.zeros((90, 120, 3), np.uint8)
    for size in ((45, 61), (200, 300)):
        picture, fewer = scaled(image, codes, size)
        assert picture.shape == (*size, 3) and fewer.shape == size
        assert set(np.unique(fewer)) == {0, 35}


def test_views_have_names(yard):
    panels = Panels(yard.classes, yard.codes)
    assert open_view("none", (48, 64), panels, yard.classes, ("", "")) is None
    with pytest.raises(ConfigError, match="unknown view 'wiped'\nDid you mean 'wipe'"):
        open_view("wiped", (48, 64), panels, yard.classes, ("", ""))
