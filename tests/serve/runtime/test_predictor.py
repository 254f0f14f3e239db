import cv2
import numpy as np
import pytest
from exports import photographs
from served import FIXED, OPEN, Threshold, expected, write_model

from rcil.core.errors import ConfigError
from rcil.model.metadata import LineageEntry
from rcil_export.graph.shapes import InputShape
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.predictor import Layout, Predictor


def blocks(height, width, side=8, seed=0):
    """Squares of colours far from the threshold, so that interpolation cannot flip their middles."""
    rng = np.random.default_rng(seed)
    small = rng.choice([20, 235], (-(-height // side), -(-width // side), 3)).astype(np.uint8)
    return small.repeat(side, 0).repeat(side, 1)[:height, :width]


def test_images_that_fit_are_segmented_as_they_are():
    backend = Threshold()
    images = [blocks(40, 56, seed=1), blocks(40, 56, seed=2), blocks(64, 48, seed=3)]
    found = Predictor(backend, Layout(batch=4)).segment_all(images)
    assert backend.shapes == [(2, 40, 56, 3), (1, 64, 48, 3)]
    for image, one in zip(images, found, strict=True):
        np.testing.assert_array_equal(one.mask, expected(image))


def trained_at(backend, scale):
    entry = LineageEntry(step=1, source="rcil add-class", config={"scale": scale})
    backend.metadata = backend.metadata.model_copy(update={"lineage": (*backend.metadata.lineage, entry)})
    return backend


def test_images_are_seen_at_the_scale_of_the_training():
    backend, image = trained_at(Threshold(), 0.5), blocks(48, 64)
    predictor = Predictor(backend)
    middles = (slice(4, None, 8), slice(4, None, 8))
    np.testing.assert_array_equal(predictor.segment(image).mask[middles], expected(image)[middles])
    assert predictor.notices == ["scale 0.5 as in the model's training; change with --scale"]
    for layout, height in ((Layout(scale=1.0), 48), (Layout(scale=0.75), 36), (Layout(size=(32, 32)), 32)):
        other = Predictor(backend, layout)
        assert other.segment(image).mask.shape == (48, 64) and not other.notices
        assert backend.shapes[-1][1] == height
    assert backend.shapes[0] == (1, 24, 32, 3)
    Predictor(backend, Layout(tile=32, overlap=0)).segment(image)
    assert backend.shapes[-1] == (1, 16, 16, 3)


def test_a_scale_is_refused_where_the_size_decides():
    fixed = trained_at(Threshold(FIXED), 0.5)
    assert Predictor(fixed).scale == 1 and Predictor(fixed).notices == []
    with pytest.raises(ConfigError, match="no effect, because threshold has one input size"):
        Predictor(fixed, Layout(scale=0.5))
    with pytest.raises(ConfigError, match="no effect, because --size is given"):
        Predictor(Threshold(), Layout(size=(32, 32), scale=0.5))


def test_tiles_of_an_image_give_the_mask_of_the_image():
    backend, image = Threshold(), blocks(100, 130)
    found = Predictor(backend, Layout(tile=48, overlap=16)).segment(image)
    np.testing.assert_array_equal(found.mask, expected(image))
    assert set(backend.shapes) == {(1, 48, 48, 3)}


def test_a_fixed_model_gets_letterboxes_and_full_batches():
    backend = Threshold(InputShape.of(48, 64, batch=2))
    image = blocks(24, 32)
    found = Predictor(backend, Layout(batch=2)).segment(image)
    assert backend.shapes == [(2, 48, 64, 3)]
    middles = (slice(4, None, 8), slice(4, None, 8))
    np.testing.assert_array_equal(found.mask[middles], expected(image)[middles])
    with pytest.raises(ConfigError, match="accepts batches of 2 to 2 images, not 3"):
        Predictor(backend, Layout(batch=3))


def test_the_size_before_enlarging_is_told_and_recovers_the_small_mask():
    backend, image = Threshold(InputShape.of(48, 64)), blocks(145, 190)
    found = Predictor(backend).segment(image)
    assert found.grid_size == (48, 63) and found.mask.shape == (145, 190)
    small = cv2.resize(found.mask, found.grid_size[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
    again = cv2.resize(small, (190, 145), interpolation=cv2.INTER_NEAREST_EXACT)
    np.testing.assert_array_equal(again, found.mask)
    assert Predictor(backend).segment(blocks(24, 32)).grid_size is None
    assert Predictor(Threshold()).segment(image).grid_size is None


def test_bars_around_a_picture_have_the_mean_colour():
    seen = []
    backend = Threshold(FIXED)
    backend.run = lambda batch: seen.append(batch) or Threshold.run(backend, batch)
    Predictor(backend).segment(np.zeros((48, 32, 3), np.uint8))
    assert seen[0][0, 0, 0].tolist() == [round(255 * value) for value in backend.metadata.mean]


def test_a_real_model_gives_the_same_through_every_way(tmp_path):
    image = photographs(1, 48, 64)[0]
    outputs = ("mask", "confidence")
    fixed = open_backend(write_model(tmp_path / "fixed.onnx", FIXED, outputs=outputs), "cpu", 1)
    floats = open_backend(write_model(tmp_path / "float.onnx", FIXED, input="float", outputs=outputs), "cpu", 1)
    open_ = open_backend(write_model(tmp_path / "open.onnx", OPEN, outputs=outputs), "cpu", 1)
    found = [Predictor(backend).segment(image) for backend in (fixed, floats, open_)]
    np.testing.assert_array_equal(found[0].mask, fixed.run(image[None]).mask[0])
    for other in found[1:]:
        assert (found[0].mask == other.mask).mean() > 0.999
        assert found[0].confidence == pytest.approx(other.confidence, abs=1e-5)


@pytest.mark.parametrize(("mean", "fill"), [((1.5, -0.2, 0.5), [255, 0, 128]), ((900.0, 0.0, 1.0), [255, 0, 255])])
def test_a_mean_beyond_black_and_white_is_no_surprise(mean, fill):
    backend = Threshold(FIXED)
    backend.metadata = backend.metadata.model_copy(update={"mean": mean})
    seen = []
    backend.run = lambda batch: (seen.append(batch), Threshold.run(backend, batch))[1]
    Predictor(backend).segment(blocks(48, 16))
    assert seen[0][0, 0, 0].tolist() == fill
