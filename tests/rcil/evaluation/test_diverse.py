import numpy as np

from rcil.evaluation.diverse import Wish, by_class_score, choose


def wish(images, count, why="x"):
    return Wish(images, [f"{why} {image}" for image in images], count)


def test_one_image_of_each_group():
    groups = np.array([0, 0, 0, 1, 1, 2, 3])
    chosen = choose([wish([0, 1, 2, 3, 4], 3, "a"), wish([3, 4, 6, 5], 5, "b")], groups)
    assert chosen == [(0, "a 0"), (3, "a 3"), (6, "b 6"), (5, "b 5")]


def test_a_few_are_shown_even_if_all_look_alike():
    assert choose([wish([4, 3, 2, 1], 4)], np.zeros(5, np.int64)) == [(4, "x 4"), (3, "x 3"), (2, "x 2")]
    assert choose([], np.zeros(0, np.int64)) == []


def test_poor_good_and_typical():
    scores = np.array([0.5, np.nan, 0.1, 0.9, 0.45, 0.0])
    poor, good, typical = by_class_score(scores, "cone", worst=1, typical=2, best=3)
    assert (poor.images, poor.count) == ([5, 2, 4, 0, 3], 1)
    assert (good.images, good.count) == ([3, 0, 4, 2, 5], 3)
    assert typical.images[:2] == [4, 0] and typical.count == 2
    assert poor.captions[:2] == ["poor for cone: IoU 0 %", "poor for cone: IoU 10 %"]
    assert by_class_score(np.full(3, np.nan), "cone", worst=1, typical=1, best=1) == []
