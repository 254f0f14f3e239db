import numpy as np

from rcil.demo.scenes import CLASSES, make_scene


def test_a_seed_always_gives_the_same_scene():
    for a, b in zip(make_scene(5), make_scene(5), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(make_scene(5)[0], make_scene(6)[0])


def test_every_class_appears_often_and_with_others():
    masks = [set(np.unique(make_scene(seed)[1])) for seed in range(60)]
    for index in range(len(CLASSES)):
        assert sum(index in mask for mask in masks) > 20
    # Background shift needs old and new classes in one image.
    assert sum({1, 3} <= mask or {2, 3} <= mask for mask in masks) > 20
