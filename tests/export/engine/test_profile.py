import pytest
from onnx_models import segmenter

from rcil.core.errors import ConfigError
from rcil_export.engine.build import build_engine
from rcil_export.engine.layout import axis_ranges, is_image
from rcil_export.engine.options import EngineOptions
from rcil_export.graph.shapes import InputShape, parse_shape

pytest.importorskip("tensorrt_rtx")
RANGE = parse_shape(None, "32x32:32x48:64x96", "1:2:4")


def test_axes_follow_the_layout():
    batch, height, width = RANGE.batch, RANGE.height, RANGE.width
    nhwc, nchw = axis_ranges((-1, -1, -1, 3), RANGE), axis_ranges((-1, 3, -1, -1), RANGE)
    assert nhwc[:3] == (batch, height, width)
    assert (nchw[0], *nchw[2:]) == (batch, height, width)
    assert (nhwc[3].low, nhwc[3].high, nchw[1].low, nchw[1].high) == (3, 3, 3, 3)


@pytest.mark.parametrize(
    ("shape", "expected"), [((1, 32, 48, 3), True), ((-1, 3, -1, -1), True), ((1, 1, 32, 48), False), ((3, 3), False)]
)
def test_what_takes_images(shape, expected):
    assert is_image(shape) is expected


@pytest.mark.parametrize("image", ["uint8", "float32"])
def test_open_sizes_are_built_and_recorded(tmp_path, image):
    onnx = segmenter(tmp_path / "model.onnx", dynamic=True, image=image)
    sidecar = build_engine(onnx, tmp_path / "model.engine", EngineOptions(gpus=("sm86",), profile=RANGE))
    assert sidecar.profile == RANGE
    assert sidecar.inputs[0].shape == ((-1, -1, -1, 3) if image == "uint8" else (-1, 3, -1, -1))
    assert sidecar.inputs[0].dtype == image


def test_fixed_sizes_have_no_profile_even_if_one_that_fits_is_given(tmp_path):
    onnx = segmenter(tmp_path / "model.onnx")
    options = EngineOptions(gpus=("sm86",), profile=InputShape.of(32, 48))
    assert build_engine(onnx, tmp_path / "model.engine", options).profile is None


def test_open_sizes_need_a_profile(tmp_path):
    onnx = segmenter(tmp_path / "model.onnx", dynamic=True)
    with pytest.raises(ConfigError, match=r"leaves sizes of 'image' open: \[\?, \?, \?, 3\]"):
        build_engine(onnx, tmp_path / "model.engine", EngineOptions())


def test_a_profile_must_fit_fixed_sizes(tmp_path):
    onnx = segmenter(tmp_path / "model.onnx")
    options = EngineOptions(profile=RANGE)
    with pytest.raises(ConfigError, match=r"takes 'image' as \[1, 32, 48, 3\], which the profile 1\.\.4 x 32\.\.64"):
        build_engine(onnx, tmp_path / "model.engine", options)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
