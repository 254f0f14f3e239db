import threading

import numpy as np
import pytest
from clips import BASE, make_clip, picture
from served import Threshold, expected, write_model

from rcil.core.errors import ConfigError
from rcil.core.reading import DataError
from rcil_serve import Model, open_model
from rcil_serve.stream.frames import SourceError


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model.onnx", outputs=("mask", "confidence"))


@pytest.fixture
def clip(tmp_path):
    return tmp_path / "yard.mp4", [float(time * BASE) for time in make_clip(tmp_path / "yard.mp4", frames=12)]


def test_a_model_describes_itself_and_predicts(exported):
    with open_model(str(exported), "cpu") as model:
        result = model.predict(picture(3, 50, 70))
        assert (model.step, model.device) == (1, "CPU")
        assert result.mask.shape == (50, 70)
        assert 0 < result.confidence <= 1
        assert set(result.shares) <= {c.name for c in model.classes}
    with pytest.raises(Exception, match="closed"):
        model.predict(picture(3, 50, 70))


def test_predictions_are_those_of_the_backend_without_a_confidence():
    image = picture(3, 48, 64)
    result = Model(Threshold()).predict(image)
    assert np.array_equal(result.mask, expected(image))
    assert result.confidence is None
    assert result.colours == tuple(c.colour for c in Model(Threshold()).classes)


def test_what_is_not_an_image_is_refused():
    with pytest.raises(DataError, match="uint8"):
        Model(Threshold()).predict(np.zeros((4, 4), np.uint8))


def test_every_frame_of_a_file_comes_with_its_time_and_result(clip, threads):
    path, times = clip
    frames = list(Model(Threshold()).stream(path))
    assert [frame.time for frame in frames] == pytest.approx(times)
    for frame in frames:
        assert np.array_equal(frame.result.mask, expected(frame.image))
    assert threading.active_count() == threads


def test_a_part_of_a_stream(clip):
    path, times = clip
    frames = list(Model(Threshold()).stream(str(path), stride=2, max_frames=3))
    assert [frame.time for frame in frames] == pytest.approx(times[:6:2])


def test_a_stream_that_is_left_early_leaves_no_thread(clip, threads):
    stream = Model(Threshold()).stream(clip[0])
    next(stream)
    stream.close()
    assert threading.active_count() == threads


def test_a_model_that_fails_ends_the_stream(clip, threads):
    class Failing(Threshold):
        def run(self, batch):
            raise ConfigError("does not run", "Use another.")

    with pytest.raises(ConfigError, match="does not run"):
        list(Model(Failing()).stream(clip[0]))
    assert threading.active_count() == threads


def test_a_source_that_fails_ends_the_stream(clip, threads, monkeypatch):
    def broken(self):
        raise SourceError("the camera is gone", "Check the cable.")
        yield

    monkeypatch.setattr("rcil_serve.stream.sources.file.FileSource.__iter__", broken)
    with pytest.raises(SourceError, match="the camera is gone"):
        list(Model(Threshold()).stream(clip[0]))
    assert threading.active_count() == threads


def test_a_stream_without_frames_is_an_error(clip):
    with pytest.raises(SourceError, match="delivered no frames"):
        list(Model(Threshold()).stream(clip[0], start=100))


def test_a_source_that_does_not_exist_is_an_error_at_once(tmp_path):
    with pytest.raises(SourceError, match="does not exist"):
        Model(Threshold()).stream(tmp_path / "gone.mp4")
