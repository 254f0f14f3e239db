import pytest
from triton_server import read_by_triton

from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.triton.config import Queue, config_text
from rcil_export.triton.step_file import signature_of

FREE = InputShape(
    batch=Extent(low=1, usual=2, high=8),
    height=Extent(low=16, usual=64, high=512),
    width=Extent(low=16, usual=96, high=512),
)


def parsed(shape, *, outputs=("mask",), backend="onnxruntime", queue=None):
    signature = signature_of(Interface(shape=shape, outputs=outputs), 5)
    return read_by_triton(config_text("yard", signature, shape, backend=backend, queue=queue or Queue()))


def test_a_free_batch_is_tritons_own_dimension():
    config = parsed(FREE, queue=Queue(max_delay_ms=0.5, max_waiting=7, timeout_ms=250))
    assert config == {
        "name": "yard",
        "backend": "onnxruntime",
        "default_model_filename": "model.onnx",
        "max_batch_size": 8,
        "input": [{"name": "image", "data_type": "TYPE_UINT8", "dims": ["-1", "-1", "3"]}],
        "output": [{"name": "mask", "data_type": "TYPE_UINT8", "dims": ["-1", "-1"]}],
        "version_policy": {"latest": {"num_versions": 2}},
        "dynamic_batching": {
            "max_queue_delay_microseconds": "500",
            "default_queue_policy": {
                "default_timeout_microseconds": "250000",
                "allow_timeout_override": True,
                "max_queue_size": 7,
            },
        },
        "model_warmup": [
            {
                "name": "black image",
                "batch_size": 2,
                "inputs": {"image": {"data_type": "TYPE_UINT8", "dims": ["64", "96", "3"], "zero_data": True}},
            }
        ],
    }


def test_a_fixed_batch_stands_in_the_dims():
    config = parsed(InputShape.of(64, 96, batch=2), outputs=("mask", "confidence", "logits"))
    assert "max_batch_size" not in config
    assert config["input"][0]["dims"] == ["2", "64", "96", "3"]
    assert [(o["name"], o["data_type"], o["dims"]) for o in config["output"]] == [
        ("mask", "TYPE_UINT8", ["2", "64", "96"]),
        ("confidence", "TYPE_FP32", ["2", "64", "96"]),
        ("logits", "TYPE_FP32", ["2", "5", "64", "96"]),
    ]
    assert not any("label_filename" in output for output in config["output"]), "labels are for classifications"
    warm_up = config["model_warmup"][0]
    assert (warm_up["batch_size"], warm_up["inputs"]["image"]["dims"]) == (1, ["2", "64", "96", "3"])


@pytest.mark.parametrize(("backend", "file"), [("onnxruntime", "model.onnx"), ("tensorrt", "model.plan")])
def test_the_backend_and_its_file_belong_together(backend, file):
    config = parsed(FREE, backend=backend)
    assert (config["backend"], config["default_model_filename"]) == (backend, file)
