import pytest
from triton_server import parse_pbtxt

from rcil.errors import ConfigError
from rcil_export.triton.serving import Serving, check_serving, parse_devices, serving_text


def parsed(precision="fp32", **options):
    return parse_pbtxt(serving_text(Serving(**options), precision))


def test_by_default_everything_is_tritons_choice():
    assert serving_text(Serving(), "fp32") == ""


def test_instances():
    assert parsed(instances=3)["instance_group"] == [{"count": 3, "kind": "KIND_AUTO"}]
    assert parsed(kind="cpu")["instance_group"] == [{"kind": "KIND_CPU"}]
    group = {"count": 2, "kind": "KIND_GPU", "gpus": [0, 2]}
    assert parsed(instances=2, kind="gpu", gpus=(0, 2))["instance_group"] == [group]


def test_threads_are_those_inside_a_node():
    text = serving_text(Serving(threads=4), "fp32")
    assert 'key: "intra_op_thread_count" value { string_value: "4" }' in text
    assert 'key: "inter_op_thread_count" value { string_value: "1" }' in text


@pytest.mark.parametrize(("precision", "mode"), [("fp32", "FP32"), ("fp16", "FP16"), ("int8", "INT8")])
def test_the_accelerator_keeps_the_precision_and_its_engines(precision, mode):
    text = serving_text(Serving(accelerator="tensorrt", cache="/var/engines"), precision)
    parameters = {"precision_mode": mode, "trt_engine_cache_enable": "true", "trt_engine_cache_path": "/var/engines"}
    for key, value in parameters.items():
        assert f'parameters {{ key: "{key}" value: "{value}" }}' in text
    assert "trt_engine_cache" not in serving_text(Serving(accelerator="tensorrt"), precision)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("auto", ("auto", ())),
        ("cpu", ("cpu", ())),
        ("gpu", ("gpu", ())),
        ("0", ("gpu", (0,))),
        ("1, 0", ("gpu", (1, 0))),
    ],
)
def test_devices(text, wanted):
    assert parse_devices(text) == wanted


@pytest.mark.parametrize("text", ["", "gpus", "0,0", "-1", "0,", "1e3", "99999"])
def test_no_devices(text):
    with pytest.raises(ConfigError, match="no device"):
        parse_devices(text)


@pytest.mark.parametrize("options", [{"threads": 2}, {"accelerator": "tensorrt"}, {"kind": "cpu"}])
def test_engines_take_no_options_of_onnx_runtime(options):
    with pytest.raises(ConfigError, match="is for ONNX models"):
        check_serving(Serving(**options), "tensorrt", "fp32")
    check_serving(Serving(instances=2, kind="gpu"), "tensorrt", "fp32")
