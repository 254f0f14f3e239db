import numpy as np

from rcil.evaluation.diverse import Wish, by_class_score, choose
from rcil.evaluation.similar_images import ALIKE, SIDE

SCENES = np.random.default_rng(0).integers(0, 256, (4, SIDE * SIDE))


def wish(images, count, why="x"):
    return Wish(images, [f"{why} {image}" for image in images], count)


def test_one_image_of_each_scene():
    thumbnails = SCENES[[0, 0, 0, 1, 1, 2, 3]]
    chosen = choose([wish([0, 1, 2, 3, 4], 3, "a"), wish([3, 4, 6, 5], 5, "b")], thumbnails)
    assert chosen == [(0, "a 0"), (3, "a 3"), (6, "b 6"), (5, "b 5")]
    assert choose([wish([0, 3, 5, 6], 2)], thumbnails)[:2] in ([(0, "x 0"), (3, "x 3")], [(0, "x 0"), (5, "x 5")])


def test_frames_of_one_second_give_way_to_other_scenes():
    """Images 1 and 2 are no near-duplicates of 0, but resemble it more than images of another place do."""
    noise = np.random.default_rng(1).integers(-50, 50, (3, SIDE * SIDE))
    thumbnails = np.concatenate([SCENES[:1] + noise, SCENES[1:]])
    images = [index for index, _ in choose([wish([0, 1, 2, 3, 4, 5], 4)], thumbnails)]
    assert images[0] == 0 and set(images) == {0, 3, 4, 5}
    similar = np.corrcoef(thumbnails)[0, 1:3]
    assert similar.max() < ALIKE and similar.min() > 0.5


def test_a_few_are_shown_even_if_all_look_alike():
    assert choose([wish([4, 3, 2, 1], 4)], SCENES[[0] * 5]) == [(4, "x 4"), (3, "x 3"), (2, "x 2")]
    assert choose([], SCENES[:0]) == []


def test_poor_good_and_typical():
    scores, sizes = np.array([0.5, np.nan, 0.1, 0.9, 0.45, 0.0, 0.0]), np.array([9, 9, 9, 9, 9, 9, 10])
    poor, good, typical = by_class_score(scores, sizes, "cone", worst=1, typical=2, best=3)
    assert (poor.images, poor.count) == ([6, 5, 2, 4, 0, 3], 1), "among equal ones the largest first"
    assert (good.images, good.count) == ([3, 0, 4, 2, 6, 5], 2), "the others of six images are poor or typical"
    assert set(typical.images[:2]) == {2, 4} and typical.count == 2
    assert poor.captions[1:3] == ["poor for cone: IoU 0 %", "poor for cone: IoU 10 %"]
    assert by_class_score(np.full(3, np.nan), np.zeros(3), "cone", worst=1, typical=1, best=1) == []
