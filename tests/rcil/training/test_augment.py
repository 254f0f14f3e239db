import numpy as np
import pytest

from rcil.training.augment import jittered, labelled_pixel, random_box, random_crop, random_resized_crop, turn_hue


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


class Scripted:
    """A generator that draws the given shares and ratios, and the largest whole numbers."""

    def __init__(self, *draws):
        self.draws = [value for share, ratio in draws for value in (share, np.log(ratio))]

    def uniform(self, low, high):
        value = self.draws.pop(0)
        assert low - 1e-9 <= value <= high + 1e-9
        return value

    def integers(self, low, high):
        assert low == 0
        return high - 1


class TestRandomResizedCrop:
    """torchvision's RandomResizedCrop, by hand."""

    @pytest.mark.parametrize(
        ("draws", "expected"),
        [
            ([(0.5, 4 / 3)], (88, 117, 212, 283)),  # sqrt(60000 * 3/4) and sqrt(60000 * 4/3)
            ([(0.5, 1)], (55, 155, 245, 245)),
            ([(1.5, 1), (0.9, 3 / 4), (0.75, 1)], (0, 100, 300, 300)),  # the second would be 379 pixels high
            ([(2.0, 1)] * 9 + [(0.5, 1)], (55, 155, 245, 245)),
            ([(2.0, 1)] * 10, (0, 0, 300, 400)),
        ],
    )
    def test_the_part_of_an_image_of_300_x_400(self, draws, expected):
        generator = Scripted(*draws)
        assert random_box(300, 400, (0.5, 2.0), generator) == expected
        assert generator.draws == []

    @pytest.mark.parametrize(("size", "expected"), [((100, 400), (0, 133, 100, 133)), ((400, 100), (133, 0, 133, 100))])
    def test_the_middle_of_long_images(self, size, expected):
        assert random_box(*size, (2.0, 2.0), np.random.default_rng(0)) == expected

    def test_parts_of_photos(self):
        """Of 375 x 500 pixels: never less than half, and the whole image as often as ten draws do not fit."""
        boxes = [random_box(375, 500, (0.5, 2.0), np.random.default_rng(i)) for i in range(2000)]
        assert all(top + h <= 375 and left + w <= 500 for top, left, h, w in boxes)
        shares = [h * w / (375 * 500) for _, _, h, w in boxes]
        assert 0.495 < min(shares) < 0.51
        draw = np.random.default_rng(0)
        area, ratio = draw.uniform(0.5, 2, 10**5), np.exp(draw.uniform(*np.log((3 / 4, 4 / 3)), 10**5))
        pixels = area * 375 * 500
        misses = 1 - ((pixels / ratio <= 375.5**2) & (pixels * ratio <= 500.5**2)).mean()
        assert sum(share == 1 for share in shares) / 2000 == pytest.approx(misses**10, abs=0.02)

    def test_image_and_mask_stay_together_and_fill_the_crop(self):
        image, mask = scene()
        for i in range(20):
            a, b = random_resized_crop(image, mask, 64, (0.5, 2.0), np.random.default_rng(i))
            assert a.shape == (64, 64, 3) and b.shape == (64, 64)
            assert (a[..., 0] == b).mean() > 0.95, "they differ at edges only, where the image is interpolated"
            assert (b == 255).mean() < 0.01, "nothing is padded"

    def test_the_whole_image_in_its_own_size_is_only_flipped(self):
        mask = np.arange(48 * 48).reshape(48, 48).astype(np.uint8)
        image = np.repeat(mask[..., None], 3, axis=2)
        flips = 0
        for i in range(40):
            a, b = random_resized_crop(image, mask, 48, (2.0, 2.0), np.random.default_rng(i))
            flipped = not np.array_equal(b, mask)
            assert np.array_equal(b, mask[:, ::-1] if flipped else mask) and np.array_equal(a[..., 1], b)
            flips += flipped
        assert 10 < flips < 30


def test_crops_are_focused_on_new_classes_only_if_old_ones_are_labelled_too():
    mask = np.full((200, 200), 1, np.uint8)
    mask[:4, :4] = 3
    image = mask[..., None].repeat(3, 2)
    crops = [random_crop(image, mask, 40, (1.0, 1.0), np.random.default_rng(i), 1.0, first=2)[1] for i in range(50)]
    assert all((crop == 3).any() for crop in crops)
    assert labelled_pixel(mask, np.random.default_rng(0), first=4) is None
