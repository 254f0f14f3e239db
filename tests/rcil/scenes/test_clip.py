import itertools

import cv2
import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.scenes import CLASSES, make_clip
from rcil.scenes.clip import CAST, MOTIONS, _moved
from rcil.scenes.layout import Thing

SIZE = (120, 160)


@pytest.fixture(scope="module")
def clip():
    return list(make_clip(0, 30, SIZE))


def test_a_frame_does_not_depend_on_the_length(clip):
    for short, long in zip(make_clip(0, 3, SIZE), clip, strict=False):
        assert np.array_equal(short.image, long.image) and np.array_equal(short.mask, long.mask)


def test_a_clip_shows_all_classes(clip):
    assert set(CAST) == set(CLASSES[1:])
    assert set(np.unique(np.stack([frame.mask for frame in clip]))) == set(range(len(CLASSES)))


def test_masks_change_between_frames_but_not_too_much(clip):
    changes = [np.mean(a.mask != b.mask) for a, b in itertools.pairwise(clip)]
    assert min(changes) > 0.0005
    assert max(changes) < 0.05
    assert np.mean(clip[0].mask != clip[-1].mask) > 1.5 * np.mean(changes)


def test_the_place_stands_still(clip):
    """Where no moving class ever is, neither mask nor light changes beyond sensor noise."""
    movers = [CLASSES.index(name) for name in ("person", "vehicle", "ball")]
    ever = np.any([np.isin(frame.mask, movers) for frame in clip], axis=0)
    # The uppermost rows are sky, out of reach of moving shadows.
    calm = ~cv2.dilate(ever.astype(np.uint8), np.ones((5, 5))).astype(bool)
    assert calm.mean() > 0.5
    assert all(np.array_equal(frame.mask[calm], clip[0].mask[calm]) for frame in clip)
    sky = np.stack([frame.image[:15].astype(np.float32) for frame in clip])
    assert 1.0 < sky.std(axis=0).mean() < 6.0


@pytest.mark.parametrize("kind", MOTIONS)
def test_objects_move_smoothly_and_keep_their_identity(kind):
    path = [_moved(Thing(kind, 1.0, 12.0, style=5, phase=0.7), frame / 12) for frame in range(120)]
    places = np.array([(thing.x, thing.z) for thing in path])
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert 0.03 < steps.max() < 0.25
    assert np.abs(np.diff(steps)).max() < 0.02
    assert np.linalg.norm(places - (1.0, 12.0), axis=1).max() < 3.5
    assert np.abs(np.diff([thing.lift for thing in path])).max() < 0.25
    assert {thing.style for thing in path} == {5}


def test_the_ball_can_be_followed_through_the_masks():
    """The mask centroid takes small steps while the ball is fully in view, and gets somewhere in the end."""
    for seed in range(10):
        masks = [frame.mask == CLASSES.index("ball") for frame in make_clip(seed, 24, SIZE)]
        areas = [int(mask.sum()) for mask in masks]
        if min(areas) > 0.7 * max(areas):
            break
    centres = np.array([np.argwhere(mask).mean(axis=0) for mask in masks])
    steps = np.linalg.norm(np.diff(centres, axis=0), axis=1)
    assert min(areas) > 0.7 * max(areas)
    assert steps.max() < 0.08 * SIZE[1]
    assert np.ptp(centres, axis=0).max() > 4


def test_what_is_not_listed_stands_still():
    thing = Thing("crate", 1.0, 9.0, style=1)
    assert _moved(thing, 3.0) is thing


def test_an_empty_clip_is_refused_at_once():
    with pytest.raises(ConfigError, match="at least one frame"):
        make_clip(0, 0, SIZE)
