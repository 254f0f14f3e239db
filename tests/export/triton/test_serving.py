import pytest
from triton_server import read_by_triton

from rcil.core.errors import ConfigError
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape
from rcil_export.triton.config import Queue, config_text
from rcil_export.triton.serving import Serving, check_serving, parse_devices, serving_text, stated_serving
from rcil_export.triton.step_file import signature_of


def parsed(precision="fp32", **options):
    return read_by_triton(serving_text(Serving(**options), precision))


def test_by_default_everything_is_tritons_choice():
    assert serving_text(Serving(), "fp32") == ""


def test_instances():
    assert parsed(instances=3)["instance_group"] == [{"count": 3}], "KIND_AUTO is the default"
    assert parsed(kind="cpu")["instance_group"] == [{"kind": "KIND_CPU"}]
    group = {"count": 2, "kind": "KIND_GPU", "gpus": [0, 2]}
    assert parsed(instances=2, kind="gpu", gpus=(0, 2))["instance_group"] == [group]


def test_threads_are_those_inside_a_node():
    threads = {"intra_op_thread_count": {"string_value": "4"}, "inter_op_thread_count": {"string_value": "1"}}
    assert parsed(threads=4)["parameters"] == threads


@pytest.mark.parametrize(("precision", "mode"), [("fp32", "FP32"), ("fp16", "FP16"), ("int8", "INT8")])
def test_the_accelerator_keeps_the_precision_and_its_engines(precision, mode):
    def accelerator(**options):
        config = parsed(precision, accelerator="tensorrt", **options)
        (found,) = config["optimization"]["execution_accelerators"]["gpu_execution_accelerator"]
        return found

    cached = {"trt_engine_cache_enable": "true", "trt_engine_cache_path": "/var/engines"}
    assert accelerator() == {"name": "tensorrt", "parameters": {"precision_mode": mode}}
    assert accelerator(cache="/var/engines")["parameters"] == {"precision_mode": mode, **cached}


def test_all_of_it_fits_into_one_configuration():
    shape = InputShape.of(64, 96)
    signature = signature_of(Interface(shape=shape), 5)
    serving = Serving(2, "gpu", (0,), 4, "tensorrt", "/var/engines")
    text = config_text("yard", signature, shape, backend="onnxruntime", queue=Queue(), serving=serving)
    config = read_by_triton(text)
    assert {"instance_group", "parameters", "optimization", "dynamic_batching", "model_warmup"} < set(config)
    assert config["output"] == [{"name": "mask", "data_type": "TYPE_UINT8", "dims": ["1", "64", "96"]}]


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
    with pytest.raises(ConfigError, match="is not a device"):
        parse_devices(text)


@pytest.mark.parametrize("options", [{"threads": 2}, {"accelerator": "tensorrt"}, {"kind": "cpu"}])
def test_engines_take_no_options_of_onnx_runtime(options):
    with pytest.raises(ConfigError, match="is for ONNX models"):
        check_serving(Serving(**options), "tensorrt", "fp32")
    check_serving(Serving(instances=2, kind="gpu"), "tensorrt", "fp32")


@pytest.mark.parametrize(
    "serving",
    [
        Serving(),
        Serving(instances=3),
        Serving(kind="cpu", threads=4),
        Serving(2, "gpu", (0, 12), 4, "tensorrt", "/var/engines"),
        Serving(kind="gpu", accelerator="tensorrt"),
    ],
)
def test_a_configuration_states_how_the_model_is_run(serving):
    shape = InputShape.of(64, 96)
    signature = signature_of(Interface(shape=shape), 5)
    text = config_text("yard", signature, shape, backend="onnxruntime", queue=Queue(), serving=serving)
    assert stated_serving(text) == serving
