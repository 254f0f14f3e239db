"""Default colours: distances with normal and simulated colour vision, and stability by name."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from rcil.core.palette import BLACK, COMMON, DISTINCT, PALETTE, colours_for, free_colour, voc_colour
from rcil.scenes.occurrence import CLASSES
from tools.palette import VISIONS, cielab, search


def smallest_distance(colours, vision):
    """The smallest CIEDE2000 distance between two of the colours."""
    lab = cielab(np.array(colours, float), vision)
    first, second = np.triu_indices(len(colours), 1)
    return deltaE_ciede2000(lab[first], lab[second]).min()


def test_the_table_is_the_result_of_the_search():
    assert tuple(search()) == PALETTE
    assert len(set(PALETTE)) == 255


def test_cielab_agrees_with_scikit_image():
    colours = np.array(PALETTE[:16], float)
    np.testing.assert_allclose(cielab(colours), rgb2lab(colours / 255), atol=0.02)


@pytest.mark.parametrize(
    ("count", "vision", "limit"),
    [
        (10, "normal", 20), (10, "deuteranopia", 11.5), (10, "protanopia", 11.5),
        (DISTINCT, "normal", 12.5), (DISTINCT, "deuteranopia", 6), (DISTINCT, "protanopia", 6),
        (64, "normal", 8), (255, "normal", 4),
    ],
)  # fmt: skip
def test_colours_can_be_told_apart(count, vision, limit):
    assert smallest_distance(PALETTE[:count], vision) > limit


def test_voc_colours_are_closer_than_the_palette():
    """The reason for the palette: VOC's first ten colours, without black, compared with ours."""
    voc = [voc_colour(index) for index in range(1, 11)]
    for vision in VISIONS:
        assert smallest_distance(voc, vision) < smallest_distance(PALETTE[:10], vision)


@pytest.mark.parametrize(("vision", "limit"), [("normal", 15), ("deuteranopia", 7), ("protanopia", 7)])
def test_the_classes_of_generated_sites_can_be_told_apart(vision, limit):
    assert smallest_distance(colours_for(CLASSES)[1:], vision) > limit


def test_a_name_has_one_colour_in_every_model():
    street = dict(zip(names := ["background", "road", "person", "car"], colours_for(names), strict=True))
    yard = dict(zip(names := ["void", "car", "pallet", "person"], colours_for(names), strict=True))
    assert street["background"] == yard["void"] == BLACK
    assert street["car"] == yard["car"] == PALETTE[0] and street["person"] == yard["person"] == PALETTE[1]
    assert colours_for(["x", "pallet"])[1] == yard["pallet"]


def test_case_and_separators_do_not_matter():
    assert (
        colours_for(["b", "Traffic_Sign"]) == colours_for(["b", "traffic sign"]) == colours_for(["b", "TRAFFIC-sign"])
    )


def test_collisions_move_the_later_and_the_uncommon_name():
    twin = next(name for n in range(1000) if free_colour(name := f"class {n}", ()) == PALETTE[COMMON["road"]])
    black, moved, road = colours_for(["background", twin, "road"])
    assert road == PALETTE[COMMON["road"]] and moved != road
    assert moved == free_colour(twin, {black, road}) and moved in PALETTE[:DISTINCT]
    first, second = colours_for(["background", "car", "vehicle"])[1:]
    assert first == PALETTE[0] and second != first
    assert colours_for(["background", "vehicle", "car"])[1] == PALETTE[0]


def test_chosen_colours_are_kept_and_not_given_twice():
    assert colours_for(["background", "road", "car"], {"road": PALETTE[0]})[1] == PALETTE[0]
    assert colours_for(["background", "road", "car"], {"road": PALETTE[0]})[2] != PALETTE[0]


@pytest.mark.parametrize("count", [2, 40, 255, 400])
def test_many_classes_have_different_colours(count):
    colours = colours_for([f"class {n}" for n in range(count)])
    assert len(set(colours)) == count and colours[0] == BLACK


def test_colours_do_not_depend_on_the_process():
    code = "from rcil.core.palette import colours_for; print(colours_for(['background', 'rust', 'dent']))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(colours_for(["background", "rust", "dent"]))


def test_common_names_are_plain_and_within_the_distinct_colours():
    assert all(name == name.casefold() and position < DISTINCT for name, position in COMMON.items())
    for first, second in itertools.pairwise(("road", "sidewalk", "building", "vegetation", "sky", "person", "car")):
        assert COMMON[first] != COMMON[second]


def test_voc_colours():
    assert [voc_colour(i) for i in (0, 1, 2, 3, 15, 20)] == [
        (0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (192, 128, 128), (0, 64, 128)]  # fmt: skip
    assert len({voc_colour(i) for i in range(256)}) == 256
