import pytest
from onnx_models import segmenter

from rcil.core.errors import ConfigError
from rcil_export.engine.log import logger_of
from rcil_export.engine.precision import check_precision, conv_precisions

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
