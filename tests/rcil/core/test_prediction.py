import numpy as np

from rcil.core.prediction import Prediction

CLASSES = {"names": ("background", "cone", "ball"), "colours": ((0, 0, 0), (200, 100, 0), (0, 0, 250))}


def test_shares_are_of_all_pixels_and_leave_out_what_does_not_occur():
    mask = np.array([[0, 0, 1, 0]], np.uint8)
    assert Prediction(np.zeros((1, 4, 3), np.uint8), mask, None, **CLASSES).shares == {"background": 0.75, "cone": 0.25}


def test_an_overlay_blends_the_colours_of_all_classes_but_the_background():
    image = np.full((1, 3, 3), 100, np.uint8)
    result = Prediction(image, np.array([[0, 1, 2]], np.uint8), 0.5, **CLASSES)
    assert result.overlay(0.5).tolist() == [[[100, 100, 100], [150, 100, 50], [50, 50, 175]]]
    assert image.tolist() == [[[100] * 3] * 3], "the image stays as it is"


def test_masks_with_more_than_256_classes_are_drawn():
    names = tuple(f"c{row}" for row in range(300))
    colours = tuple((row % 256, 0, 0) for row in range(300))
    mask = np.array([[299, 255]], np.int32)
    result = Prediction(np.zeros((1, 2, 3), np.uint8), mask, None, names, colours)
    assert result.overlay(1.0)[0, :, 0].tolist() == [299 % 256, 255]
    assert result.shares == {"c255": 0.5, "c299": 0.5}


def test_a_legend_goes_below_the_image():
    image = np.zeros((20, 300, 3), np.uint8)
    seen = Prediction(image, np.ones((20, 300), np.uint8), None, **CLASSES)
    empty = Prediction(image, np.zeros((20, 300), np.uint8), None, **CLASSES)
    assert seen.overlay(with_legend=True).shape[0] > 20
    assert empty.overlay(with_legend=True).shape == image.shape


def test_a_prediction_is_printed_in_one_line():
    result = Prediction(np.zeros((1, 1, 3), np.uint8), np.zeros((1, 1), np.uint8), 0.5, **CLASSES)
    assert repr(result) == "Prediction(confidence=0.5, names=('background', 'cone', 'ball'))"
