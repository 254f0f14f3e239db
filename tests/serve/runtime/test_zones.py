import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil_serve.runtime.zones import WHOLE, parse_zone, parse_zones


def test_shares_are_those_of_the_pixels_inside():
    mask = np.zeros((100, 200), np.uint8)
    mask[:, :100] = 3
    left = parse_zone("left half=0,0 0.5,0 0.5,1 0,1")
    assert left.name == "left half"
    assert left.share(mask, 3) == pytest.approx(1, abs=0.02)
    assert left.share(mask, 0) == pytest.approx(0, abs=0.02)
    assert WHOLE.share(mask, 3) == 0.5
    middle = parse_zone("m= 0.25,0.25  0.75,0.25 ; 0.75,0.75 0.25,0.75")
    assert middle.share(mask, 3) == pytest.approx(0.5, abs=0.02)
    triangle = parse_zone("t=0,0 1,0 0,1")
    assert triangle.share(mask, 3) == pytest.approx(0.75, abs=0.02)


def test_zones_hold_at_every_size_and_for_wide_masks():
    zone = parse_zone("z=0.5,0.5 1,0.5 1,1 0.5,1")
    for height, width in ((48, 64), (480, 640), (7, 5)):
        mask = np.zeros((height, width), np.int32)
        mask[height // 2 :, width // 2 :] = 300
        assert zone.share(mask, 300) == pytest.approx(1, abs=0.35 if height < 10 else 0.08)


def test_the_outline_and_the_name_are_drawn():
    image = np.full((120, 160, 3), 90, np.uint8)
    parse_zone("dock=0.25,0.25 0.75,0.25 0.75,0.75 0.25,0.75").draw(image)
    assert image[30, 60].min() > 200, "the upper side"
    assert image[100, 140].tolist() == [90, 90, 90]
    assert (image[32:60, 42:100] > 200).any(), "the name"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dock", "three corners"),
        ("=0,0 1,0 1,1", "three corners"),
        ("dock=0,0 1,0", "three corners"),
        ("dock=0,0 1,0 1", "three corners"),
        ("dock=0,0 1,0 a,1", "not two numbers"),
        ("dock=0,0 1,0 1,1.5", "beyond the picture"),
        ("dock=0,0 1,0 nan,1", "beyond the picture"),
        ("dock=0,0 0.5,0.5 1,1", "no area"),
        ("the picture=0,0 1,0 1,1", "whole picture"),
    ],
)
def test_zones_that_are_none(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_zone(text)
    assert caught.value.hint


def test_two_zones_of_one_name():
    with pytest.raises(ConfigError, match="two zones 'a'"):
        parse_zones(["a=0,0 1,0 1,1", "a=0,0 1,0 0,1"])
