import json
import tracemalloc

import numpy as np
import pytest
from servers import ANY_SIZE, FIXED, write_model

from rcil_export.graph.shapes import InputShape
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.messages import (
    InferRequest,
    answer_to,
    check_outputs,
    input_of,
    input_tensor,
    output_tensors,
    parse_request,
)
from rcil_serve.runtime.backends import open_backend

SMALL = FIXED.model_copy(update={"shape": InputShape.of(2, 2)})
VALUES = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)


@pytest.fixture
def tensor(tmp_path):
    return input_tensor(open_backend(write_model(tmp_path / "m.onnx", 1, SMALL), "cpu", 1))


def request(document, behind=b""):
    header = json.dumps(document).encode()
    return parse_request(header + behind, str(len(header)) if behind else None)


def image(**changes):
    return {"name": "image", "datatype": "UINT8", "shape": [1, 2, 2, 3], **changes}


@pytest.mark.parametrize("data", [list(range(12)), VALUES.tolist(), VALUES.astype(float).tolist()])
def test_numbers_in_json_nested_or_flat(tensor, data):
    read = input_of(*request({"inputs": [image(data=data)]}), tensor)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, VALUES)


def test_bytes_behind_the_json(tensor):
    sent = {"inputs": [image(parameters={"binary_data_size": 12})]}
    np.testing.assert_array_equal(input_of(*request(sent, VALUES.tobytes()), tensor), VALUES)


@pytest.mark.parametrize(
    ("sent", "behind", "words"),
    [
        ([], b"", "the inputs are none"),
        ([image(name="picture")], b"", "image UINT8 \\[1, 2, 2, 3\\]"),
        ([image(datatype="FP32")], b"", "image is FP32"),
        ([image(shape=[1, 2, 3, 3])], b"", r"\[1, 2, 3, 3\]; the model expects image UINT8 \[1, 2, 2, 3\]"),
        ([image(shape=[2, 2, 3])], b"", "has the shape"),
        ([image(shape=[1, 2, 2, -3])], b"", "has the shape"),
        ([image()], b"", "no data"),
        ([image(data=[1, 2])], b"", "2 values"),
        ([image(data=[[1], [2, 3]])], b"", "invalid data"),
        ([image(data=["1"] * 12)], b"", "invalid data"),
        ([image(data=[*range(11), 256])], b"", "from 0 to 255"),
        ([image(data=[*range(11), -1])], b"", "from 0 to 255"),
        ([image(data=[*range(11), 0.5])], b"", "from 0 to 255"),
        ([image(data=list(range(12)))], b"123", "3 bytes follow"),
        ([image(parameters={"binary_data_size": 12})], b"123", "is 12, and 3 bytes"),
        ([image(parameters={"binary_data_size": 3})], b"123", "does not have 3 bytes"),
    ],
)
def test_inputs_that_do_not_fit(tensor, sent, behind, words):
    with pytest.raises(RefusalError, match=words) as caught:
        input_of(*request({"inputs": sent}, behind), tensor)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("body", "length"),
    [(b"", None), (b"{", None), (b"[]", None), (b'{"inputs": 3}', None), (b"[" * 100_000, None)]
    + [(b"{}", length) for length in ("0", "3", "-1", "x", "1e3", "²")],
)
def test_requests_that_cannot_be_read(body, length):
    with pytest.raises(RefusalError) as caught:
        parse_request(body, length)
    assert caught.value.status == 400


def test_outputs_must_exist():
    with pytest.raises(RefusalError, match="unknown output 'logits'"):
        check_outputs(request({"inputs": [], "outputs": [{"name": "logits"}]})[0], ["mask"])
    classified = {"name": "mask", "parameters": {"classification": 3}}
    with pytest.raises(RefusalError, match="classification"):
        check_outputs(request({"inputs": [], "outputs": [classified]})[0], ["mask"])


@pytest.mark.parametrize(
    ("parameters", "outputs", "behind"),
    [
        ({}, [], []),
        ({"binary_data_output": True}, [], ["mask", "confidence"]),
        ({}, [{"name": "confidence", "parameters": {"binary_data": True}}, {"name": "mask"}], ["confidence"]),
        ({"binary_data_output": True}, [{"name": "mask", "parameters": {"binary_data": False}}], []),
    ],
)
def test_answers_as_asked(parameters, outputs, behind):
    found = {"mask": np.array([[[1, 2]]], np.uint8), "confidence": np.array([[[0.5, 0.25]]], np.float32)}
    asked = request({"id": "7", "inputs": [], "parameters": parameters, "outputs": outputs})[0]
    body, header = answer_to(asked, "rcil", "3", found)
    document = json.loads(body[:header])
    assert (document["model_name"], document["model_version"], document["id"]) == ("rcil", "3", "7")
    wanted = [one["name"] for one in outputs] or ["mask", "confidence"]
    assert [one["name"] for one in document["outputs"]] == wanted
    rest = body[header:] if header is not None else b""
    for one in document["outputs"]:
        values = found[one["name"]]
        assert one["shape"] == [1, 1, 2]
        if one["name"] in behind:
            assert one["parameters"] == {"binary_data_size": values.nbytes}
            assert rest[: values.nbytes] == values.tobytes()
            rest = rest[values.nbytes :]
        else:
            assert one["data"] == values.ravel().tolist()
    assert rest == b""


def test_binary_outputs_are_copied_once():
    mask = np.ones((1, 1000, 1000), np.uint8)
    request = InferRequest(inputs=[], parameters={"binary_data_output": True})
    tracemalloc.start()
    try:
        answer_to(request, "rcil", "1", {"mask": mask})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * mask.nbytes


def test_described_tensors(tmp_path):
    backend = open_backend(write_model(tmp_path / "m.onnx", 1, ANY_SIZE), "cpu", 1)
    assert input_tensor(backend).describe() == {"name": "image", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}
    assert [one.describe()["datatype"] for one in output_tensors(backend)] == ["UINT8", "FP32"]
    assert str(input_tensor(backend)) == "image UINT8 [1 to 4, 8 to 512, 8 to 512, 3]"
