import math

import cv2
import numpy as np
import pytest

from rcil.scenes import CLASSES, DOMAINS
from rcil.scenes.ground import paint_backdrop
from rcil.scenes.layout import Layout, Road, Thing, View
from rcil.scenes.objects.kinds import KINDS
from rcil.scenes.objects.materials import bricks, leaves, noise, ribs
from rcil.scenes.objects.pen import Pen
from rcil.scenes.render import render

VIEW = View((240, 320), 0.3, 3.0)


def drawn(*things, sun=(1.0, 0.8), domain="sunny", road=None):
    layout = Layout(VIEW, road, False, 0, sun, things)
    return render(layout, DOMAINS[domain], paint_backdrop(layout, DOMAINS[domain]))


def box_of(mask, name):
    return cv2.boundingRect((mask == CLASSES.index(name)).astype(np.uint8))


def test_ground_points_come_back_from_their_pixel():
    x, z = VIEW.point_at(0.7, 0.4)
    column, row = VIEW.foot(x, z)
    assert column == pytest.approx(0.7 * 320)
    assert row == pytest.approx(0.3 * 240 + 0.4 * 0.7 * 240)


def test_the_ground_plane_agrees_with_the_foot_of_an_object():
    x, z = VIEW.ground()
    column, row = VIEW.foot(float(x[60, 200]), float(z[60, 200]))
    assert (column, row) == pytest.approx((200.5, VIEW.horizon_row + 60.5), abs=1e-2)


def test_twice_the_distance_is_half_the_size_and_higher_up():
    heights, feet = [], []
    for z in (8.0, 16.0):
        _, top, _, height = box_of(drawn(Thing("person", 0.0, z, style=3))[1], "person")
        heights.append(height)
        feet.append(top + height)
    assert heights[0] / heights[1] == pytest.approx(2.0, rel=0.08)
    assert feet[0] > feet[1] + 30


def test_the_nearer_object_hides_the_farther_whatever_the_order():
    far, near = Thing("vehicle_side", 0.0, 14.0, style=9), Thing("crate", 0.0, 9.0, style=2)
    one, other = drawn(far, near)[1], drawn(near, far)[1]
    assert np.array_equal(one, other)
    alone = drawn(near)[1] == CLASSES.index("crate")
    assert np.all(one[alone] == CLASSES.index("crate"))
    assert (one == CLASSES.index("vehicle")).sum() < (drawn(far)[1] == CLASSES.index("vehicle")).sum()


def test_a_shadow_darkens_the_ground_on_the_far_side_of_the_sun():
    thing = Thing("crate", 0.0, 10.0, style=2)
    empty, _ = drawn()
    for side in (-1.3, 1.3):
        image, mask = drawn(thing, sun=(side, 0.6))
        dark = ((image / empty).mean(axis=2) < 0.75) & (mask == 0)
        assert dark.sum() > 50
        assert np.sign(np.nonzero(dark)[1].mean() - 160) == np.sign(side)


def test_clouds_leave_only_the_shadow_of_contact():
    thing = Thing("person", 0.0, 8.0, style=2)
    counts = {}
    for domain in ("sunny", "overcast"):
        image, mask = drawn(thing, sun=(1.3, 0.8), domain=domain)
        counts[domain] = int((((image / drawn(domain=domain)[0]).mean(axis=2) < 0.9) & (mask == 0)).sum())
    assert 20 < counts["overcast"] < 0.6 * counts["sunny"]


def test_haze_draws_far_objects_to_its_colour():
    haze = np.array(DOMAINS["rain"].sky[1])
    distance = []
    for z in (9.0, 30.0):
        image, mask = drawn(Thing("vehicle_side", 0.0, z, style=4), domain="rain")
        distance.append(np.abs(image[mask == CLASSES.index("vehicle")] - haze).mean())
    assert distance[1] < 0.7 * distance[0]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_stays_within_its_reach(name):
    """Nothing is cut off: no coverage on the left, right and upper border of the cut-out."""
    for style in range(40):
        pen = Pen((300.0, 500.0), 30.0, KINDS[name].reach, (600, 600))
        KINDS[name].draw(pen, np.random.default_rng(style), 1.5)
        assert pen.alpha.max() == 255
        assert not pen.alpha[0].any() and not pen.alpha[:, 0].any() and not pen.alpha[:, -1].any()


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_can_stand_at_the_border_of_the_image(name):
    for foot in ((0.0, 100.0), (-40.0, 100.0), (96.0, 130.0)):
        pen = Pen(foot, 40.0, KINDS[name].reach, (96, 96))
        if pen.inside:
            KINDS[name].draw(pen, np.random.default_rng(0), 0.0)


def test_an_object_out_of_view_changes_nothing():
    assert np.array_equal(drawn(Thing("ball", 500.0, 10.0, style=0))[0], drawn()[0])


def test_sub_pixel_moves_show():
    sums = []
    for shift in (0.0, 0.25, 0.5):
        pen = Pen((40.0 + shift, 60.0), 20.0, KINDS["ball"].reach, (80, 80))
        KINDS["ball"].draw(pen, np.random.default_rng(0), 0.0)
        weights = pen.alpha.sum(axis=0).astype(float)
        sums.append(float((weights * (pen.left + np.arange(weights.size))).sum() / weights.sum()))
    assert np.diff(sums) == pytest.approx([0.25, 0.25], abs=0.06)


def test_the_road_lies_where_the_layout_says():
    road = Road(0.5, 10.0, 0.2, 2.5)
    mask = drawn(road=road)[1]
    x, z = VIEW.ground()
    for row, column in ((150, 10), (150, 170), (100, 200), (40, 160), (100, 60)):
        inside = abs(road.offset(float(x[row, column]), float(z[row, column]))) < road.half_width
        assert (mask[VIEW.horizon_row + row, column] == CLASSES.index("road")) == inside
    assert (mask[: VIEW.horizon_row] == 0).all()


@pytest.mark.parametrize("tile", [noise, leaves, bricks, ribs])
def test_tiles_are_normalised_and_repeat_without_a_seam(tile):
    texels = tile()
    assert abs(float(texels.mean())) < 1e-3 and math.isclose(float(texels.std()), 1, rel_tol=1e-3)
    for axis in (0, 1):
        seam = np.abs(np.take(texels, 0, axis) - np.take(texels, -1, axis)).mean()
        inner = np.abs(np.diff(texels, axis=axis)).mean(axis=1 - axis)
        assert seam <= inner.max() * 1.1
