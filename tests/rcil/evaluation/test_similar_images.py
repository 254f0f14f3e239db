import numpy as np

from rcil.evaluation.similar_images import SIDE, group_similar, thumbnail


def noise(seed, size=(48, 64)):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def blocks(seed):
    """A picture of large random squares, which a thumbnail keeps."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 8, 1), np.uint8)
    return np.repeat(np.repeat(np.repeat(small, 8, 0), 8, 1), 3, 2)


def test_a_thumbnail_is_grey_and_tiny():
    small = thumbnail(np.full((30, 50, 3), 77, np.uint8))
    assert small.shape == (SIDE * SIDE,) and small.dtype == np.uint8
    assert set(small.tolist()) == {77}


def test_copies_with_noise_and_other_brightness_are_one_scene():
    first, second = blocks(0), blocks(1)
    noisy = np.clip(first.astype(int) + np.random.default_rng(5).integers(-9, 10, first.shape), 0, 255).astype(np.uint8)
    images = [first, second, noisy, first // 2 + 30, second]
    assert group_similar(np.stack([thumbnail(image) for image in images])).tolist() == [0, 1, 0, 0, 1]


def test_different_scenes_are_apart():
    assert group_similar(np.stack([thumbnail(blocks(seed)) for seed in range(6)])).tolist() == list(range(6))


def test_a_pan_is_cut_into_several_groups():
    """Every frame resembles the next one, but the last does not resemble the first."""
    wide = np.concatenate([blocks(seed) for seed in range(4)], axis=1)
    frames = [thumbnail(wide[:, x : x + 64]) for x in range(0, 190, 1)]
    groups = group_similar(np.stack(frames))
    assert groups.tolist() == sorted(groups.tolist())
    assert 20 < groups.max() < 100


def test_uniform_images_are_one_scene():
    flat = [np.full((20, 20, 3), level, np.uint8) for level in (0, 200)]
    assert group_similar(np.stack([thumbnail(image) for image in [*flat, blocks(0)]])).tolist() == [0, 0, 1]
    assert group_similar(np.zeros((0, SIDE * SIDE), np.uint8)).tolist() == []
