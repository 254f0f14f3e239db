import json

import numpy as np
import pytest
from servers import ANY_SIZE, client_of, picture, rows_of, running, write_model
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from rcil_export.graph.onnx_file import read_onnx
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions

IMAGES = np.stack([picture(seed) for seed in range(3)])


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    new, old = write_model(folder / "new.onnx", 2, ANY_SIZE), write_model(folder / "old.onnx", 1, ANY_SIZE)
    with running(make_app(HttpOptions(new, previous=old, threads=1, max_pixels=40_000))) as address:
        yield address


@pytest.fixture
def client(address):
    client = InferenceServerClient(address)
    yield client
    client.close()


def tensor(images, *, binary=True):
    made = InferInput("image", list(images.shape), "UINT8")
    made.set_data_from_numpy(images, binary_data=binary)
    return made


def test_health_and_descriptions(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("rcil") and client.is_model_ready("rcil", "1")
    assert not client.is_model_ready("rcil", "0") and not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == [
        "binary_tensor_data",
        "model_configuration",
        "model_repository",
    ]
    described = client.get_model_metadata("rcil")
    assert described["versions"] == ["1", "2"] and described["platform"] == "onnxruntime_onnx"
    assert described["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}]
    assert [(o["name"], o["datatype"]) for o in described["outputs"]] == [("mask", "UINT8"), ("confidence", "FP32")]
    index = client.get_model_repository_index()
    assert [(row["name"], row["version"], row["state"]) for row in index] == [("rcil", v, "READY") for v in ("1", "2")]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("binary_answer", [True, False])
def test_masks(client, binary, binary_answer):
    wanted = [InferRequestedOutput(name, binary_data=binary_answer) for name in ("mask", "confidence")]
    result = client.infer("rcil", [tensor(IMAGES, binary=binary)], outputs=wanted, request_id="a7")
    np.testing.assert_array_equal(result.as_numpy("mask"), rows_of(IMAGES, 2))
    assert result.as_numpy("mask").dtype == np.uint8
    assert result.as_numpy("confidence").shape == IMAGES.shape[:3]
    assert result.as_numpy("confidence").min() > 0.5
    assert result.get_response()["id"] == "a7"


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_packed_requests(client, packed):
    result = client.infer(
        "rcil", [tensor(IMAGES)], request_compression_algorithm=packed, response_compression_algorithm=packed
    )
    np.testing.assert_array_equal(result.as_numpy("mask"), rows_of(IMAGES, 2))


def test_versions(client):
    for version, step in (("", 2), ("2", 2), ("1", 1)):
        result = client.infer("rcil", [tensor(IMAGES)], model_version=version)
        assert result.get_response()["model_version"] == str(step)
        np.testing.assert_array_equal(result.as_numpy("mask"), rows_of(IMAGES, step))


def test_asynchronous_requests(client):
    waiting = [client.async_infer("rcil", [tensor(image[None])]) for image in IMAGES]
    for request, image in zip(waiting, IMAGES, strict=True):
        np.testing.assert_array_equal(request.get_result().as_numpy("mask")[0], rows_of(image, 2))


@pytest.mark.parametrize(
    ("name", "version", "images", "output", "status", "words"),
    [
        ("other", "", IMAGES, "mask", "404", "unknown model 'other'"),
        ("rcil", "7", IMAGES, "mask", "404", "unknown version 7"),
        ("rcil", "", IMAGES, "logits", "400", "unknown output 'logits'"),
        ("rcil", "", IMAGES[:, :4], "mask", "400", "image UINT8 [1 to 4, 8 to 512, 8 to 512, 3]"),
        ("rcil", "", np.zeros((2, 200, 200, 3), np.uint8), "mask", "413", "more than 40000 pixels"),
    ],
)
def test_refusals_reach_the_client(client, name, version, images, output, status, words):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(name, [tensor(images)], version, outputs=[InferRequestedOutput(output)])
    assert caught.value.status() == status
    assert words in caught.value.message()


def test_what_is_not_offered_is_said_as_json(client):
    with pytest.raises(InferenceServerException, match="Not Found"):
        client.get_inference_statistics("rcil")


def test_the_configuration_describes_the_model(client):
    for version, step in (("", 2), ("1", 1)):
        config = client.get_model_config("rcil", version)
        assert (config["name"], config["max_batch_size"]) == ("rcil", 4)
        described = json.loads(config["parameters"][f"rcil.{step}"]["string_value"])
        assert described["metadata"]["step"] == step and len(described["metadata"]["classes"]) == step + 2
        assert described["interface"]["shape"]["batch"]["high"] == 4 and len(described["sha256"]) == 64


def test_load(client):
    client.load_model("rcil")
    with pytest.raises(InferenceServerException, match="unknown model 'other'"):
        client.load_model("other")


def test_float_input(tmp_path):
    """A model that takes normalised images says so, and is asked so."""
    metadata = read_onnx(write_model(tmp_path / "m.onnx", 1)).metadata
    network_takes = _float_model(tmp_path / "float.onnx", metadata)
    with client_of(make_app(HttpOptions(network_takes, threads=1))) as client:
        described = client.get("/v2/models/rcil").json()["inputs"]
        assert described == [{"name": "image", "datatype": "FP32", "shape": [1, 3, 24, 40]}]
        values = np.random.default_rng(0).standard_normal((1, 3, 24, 40), np.float32)
        sent = {"name": "image", "datatype": "FP32", "shape": [1, 3, 24, 40], "data": values.ravel().tolist()}
        answer = client.post("/v2/models/rcil/infer", content=json.dumps({"inputs": [sent]}))
        [mask] = answer.json()["outputs"]
        np.testing.assert_array_equal(np.reshape(mask["data"], mask["shape"]), values.argmax(1))


def _float_model(path, metadata):
    """Gives the channel with the largest value as the class."""
    import onnx
    from onnx import TensorProto, helper

    from rcil.model.header import METADATA_KEY
    from rcil_export.graph.interface import INTERFACE_KEY, Interface
    from rcil_export.graph.shapes import InputShape

    nodes = [
        helper.make_node("ArgMax", ["image"], ["index"], axis=1, keepdims=0),
        helper.make_node("Cast", ["index"], ["mask"], to=TensorProto.UINT8),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 24, 40])]
    outputs = [helper.make_tensor_value_info("mask", TensorProto.UINT8, [1, 24, 40])]
    graph = helper.make_graph(nodes, "segmenter", inputs, outputs)
    document = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    interface = Interface(shape=InputShape.of(24, 40), input="float")
    for key, text in ((METADATA_KEY, metadata.model_dump_json()), (INTERFACE_KEY, interface.model_dump_json())):
        document.metadata_props.add(key=key, value=text)
    onnx.save(document, path)
    return path
