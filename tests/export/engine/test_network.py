import pytest
from onnx_models import segmenter

from rcil.core.errors import ConfigError
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.callbacks import logger_of
from rcil_export.engine.network import check_precision, conv_precisions
from rcil_export.engine.sidecar import axis_ranges, is_image
from rcil_export.graph.shapes import InputShape, parse_shape

trt = pytest.importorskip("tensorrt_rtx")


def counts_of(path):
    builder = trt.Builder(logger_of(trt))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger_of(trt))
    assert parser.parse_from_file(str(path))
    return conv_precisions(trt, network)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_the_convs_say_what_they_are(tmp_path, precision):
    assert counts_of(segmenter(tmp_path / "model.onnx", precision=precision)) == {precision: 2}


def test_one_conv_kept_exact(tmp_path):
    path = segmenter(tmp_path / "model.onnx", precision="fp16", classifier="fp32")
    assert counts_of(path) == {"fp32": 1, "fp16": 1}


def test_weights_alone_do_not_make_int8(tmp_path):
    path = segmenter(tmp_path / "model.onnx", precision="int8", quantised_input=False)
    assert counts_of(path) == {"fp32": 2}


@pytest.mark.parametrize(
    ("counts", "asked"),
    [
        ({"fp32": 3}, "fp32"),
        ({"fp32": 1, "fp16": 1}, "fp16"),
        ({"fp32": 1, "fp16": 1, "int8": 2}, "int8"),
        ({"bf16": 5}, "bf16"),
    ],
)
def test_allowed(counts, asked):
    check_precision("model.onnx", counts, asked)


@pytest.mark.parametrize(
    ("counts", "asked", "found"),
    [
        ({"fp32": 2}, "fp16", "2 of 2 in fp32"),
        ({"fp32": 99, "fp16": 1}, "fp32", "99 of 100 in fp32, 1 of 100 in fp16"),
        ({"fp32": 2, "fp16": 1}, "fp16", "2 of 3 in fp32, 1 of 3 in fp16"),
        ({"fp16": 9, "bf16": 1}, "fp16", "9 of 10 in fp16, 1 of 10 in bf16"),
        ({"fp16": 1, "int8": 9}, "fp16", "1 of 10 in fp16, 9 of 10 in int8"),
    ],
)
def test_never_something_else_than_asked(counts, asked, found):
    with pytest.raises(ConfigError) as caught:
        check_precision("model.onnx", counts, asked)
    assert caught.value.message == f"an engine in {asked} was asked for, but the convs of model.onnx are {found}"


def test_a_graph_without_convs():
    with pytest.raises(ConfigError, match=r"model\.onnx has no conv"):
        check_precision("model.onnx", {}, "fp32")


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
