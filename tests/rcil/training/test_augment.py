import numpy as np
import pytest

from rcil.training.augment import jittered, labelled_pixel, random_crop, turn_hue


def scene():
    """A road over half of the image, a sign of nine pixels, some pixels that do not count."""
    mask = np.zeros((120, 160), np.uint8)
    mask[60:] = 1
    mask[10:13, 140:143] = 2
    mask[:5, :5] = 255
    return np.repeat(mask[..., None], 3, axis=2), mask


def test_focused_crops_hold_a_class_and_small_ones_as_often_as_large_ones():
    image, mask = scene()
    crops = [random_crop(image, mask, 40, (1.0, 1.0), np.random.default_rng(i), focus=1.0)[1] for i in range(300)]
    assert all(((crop == 1) | (crop == 2)).any() for crop in crops)
    assert 120 < sum((crop == 2).any() for crop in crops) < 190
    places = {tuple(np.argwhere(crop == 2)[0]) for crop in crops if (crop == 2).any()}
    assert len(places) > 50, "the pixel lies anywhere in the crop"


def test_focus_is_a_share():
    image, mask = scene()
    seen = sum(
        (random_crop(image, mask, 40, (1.0, 1.0), np.random.default_rng(i), focus=0.5)[1] == 2).any()
        for i in range(400)
    )
    plain = sum((random_crop(image, mask, 40, (1.0, 1.0), np.random.default_rng(i))[1] == 2).any() for i in range(400))
    assert 70 < seen < 150
    assert plain < 60


@pytest.mark.parametrize("crop", [40, 200])
def test_crops_stay_inside_and_have_their_size(crop):
    image, mask = scene()
    for i in range(50):
        a, b = random_crop(image, mask, crop, (0.5, 2.0), np.random.default_rng(i), focus=1.0)
        assert a.shape == (crop, crop, 3) and b.shape == (crop, crop)
        assert crop > 40 or (b == 255).sum() <= 100, "no padding where the image is large enough"


def test_nothing_labelled_gives_any_crop():
    mask = np.zeros((50, 50), np.uint8)
    mask[:, 0] = 255
    assert labelled_pixel(mask, np.random.default_rng(0)) is None
    assert random_crop(mask[..., None].repeat(3, 2), mask, 20, (1, 1), np.random.default_rng(0), 1.0)[1].shape == (
        20,
        20,
    )


def test_jitter_stays_within_its_strength_and_changes_every_image():
    image = np.random.default_rng(0).integers(60, 190, (32, 32, 3), np.uint8)
    means = []
    for seed in range(200):
        changed = jittered(image, 0.2, np.random.default_rng(seed))
        assert changed.shape == image.shape and changed.dtype == np.uint8
        means.append(changed.mean() / image.mean())
    assert 0.79 < min(means) < 0.85 and 1.15 < max(means) < 1.21, "brightness varies by a fifth"
    assert np.array_equal(jittered(image, 0.0, np.random.default_rng(1)), image)


def test_a_grey_image_stays_grey_and_contrast_keeps_its_mean():
    grey = np.repeat(np.arange(64, 192, dtype=np.uint8).reshape(8, 16, 1), 3, axis=2)
    changed = jittered(grey, 0.3, np.random.default_rng(3)).astype(int)
    assert np.ptp(changed, axis=2).max() <= 1


def test_hue_turns_by_a_share_of_the_circle():
    red = np.array([[[200, 50, 50]]], np.uint8)
    assert turn_hue(red, 1 / 3).tolist() == [[[50, 200, 50]]]
    assert turn_hue(red, -1 / 3).tolist() == [[[50, 50, 200]]]
    assert turn_hue(red, 0.001) is red
