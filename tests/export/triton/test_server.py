"""The repository in a real Triton server; `RCIL_TRITON` names the folder that keeps the server between runs."""

import json
import logging
import subprocess
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import at_step, small_arch
from triton_server import TOOLS, expected_mask, metadata_of, running, server_folder, write_onnx

from rcil.model.metadata import Metadata, class_table
from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.triton.config import Queue
from rcil_export.triton.repository import publish
from rcil_export.triton.serving import Serving

pytestmark = pytest.mark.slow

FREE = InputShape(
    batch=Extent(low=1, usual=1, high=4),
    height=Extent(low=16, usual=48, high=2048),
    width=Extent(low=16, usual=64, high=2048),
)
PATIENT = 60_000
"""A time-out that a busy machine does not reach."""
STEPS = [["background"], ["ball", "cone"], ["crane", "door"], ["edge"]]


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    folder, place = server_folder(request), tmp_path_factory.mktemp("triton")
    (place / "models").mkdir()
    with running(folder, place / "models", place / "server.log") as server:
        yield server


@pytest.fixture
def add(server, tmp_path):
    """Publishes a small segmenter of a step and loads it."""

    def add_step(name, step, interface, *, load=server.load, **options):
        metadata = metadata_of(STEPS[: step + 1])
        model = write_onnx(tmp_path / f"{name}{step}.onnx", len(metadata.classes), interface)
        version = publish(model, metadata, interface, server.log.parent / "models", name=name, **options)
        load(name)
        return version

    return add_step


@pytest.fixture
def images(tmp_path):
    """Photographs of every brightness but those half-way between two classes: [4, 48, 64, 3], and their file."""
    brightness = np.array([value for value in range(256) if value % 40 != 20], np.uint8)
    images = np.random.default_rng(0).choice(brightness, (4, 48, 64, 3))
    np.save(tmp_path / "images.npy", images)
    return images


def infer(server, name, image, version=None):
    """Outputs of one request with JSON tensors, by name."""
    tensor = {"name": "image", "datatype": "UINT8", "shape": list(image.shape), "data": image.ravel().tolist()}
    path = f"models/{name}" + (f"/versions/{version}" if version is not None else "")
    answer = server.call(f"{path}/infer", {"inputs": [tensor]})
    return {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in answer["outputs"]}


class Load:
    """`tools/triton/load.py` in the server's environment."""

    def __init__(self, server, name, folder, threads=4):
        self.masks = folder / "masks.npz"
        arguments = [server.url, name, str(folder / "images.npy"), f"--threads={threads}", f"--masks={self.masks}"]
        self.process = server.python(TOOLS / "load.py", *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_until_started(self):
        assert json.loads(self.process.stdout.readline()) == {"started": True}

    def stop(self):
        output, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return json.loads(output)


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_step_is_added_under_load_without_a_failed_request(server, add, images, tmp_path):
    interface, queue = Interface(shape=FREE), Queue(timeout_ms=PATIENT)
    add("yard", 1, interface, queue=queue)
    assert server.states("yard") == {"1": "READY"}
    load = Load(server, "yard", tmp_path)
    load.wait_until_started()
    time.sleep(1)
    add("yard", 2, interface, queue=queue, load=server.load_beside_clients)
    time.sleep(1)
    seen = load.stop()
    logging.info("%(requests)d requests, failures %(failures)s, classes %(classes)s, slowest %(slowest)s s", seen)
    assert seen["failures"] == []
    assert seen["classes"] == {"1": [0, 1, 2], "2": [0, 1, 2, 3, 4]}
    assert all(order == ["1", "2"] for order in seen["orders"])
    assert min(seen["answers"].values()) > 20
    assert seen["unequal"] == 0
    masks = np.load(load.masks)
    for version, classes in (("1", 3), ("2", 5)):
        np.testing.assert_array_equal(masks[version], expected_mask(images, classes))

    assert server.states("yard") == {"1": "READY", "2": "READY"}
    for version, classes in ((1, 3), (2, 5), (None, 5)):
        mask = infer(server, "yard", images[:2], version)["mask"]
        np.testing.assert_array_equal(mask, expected_mask(images[:2], classes))

    add("yard", 3, interface, queue=queue)
    wait_for(lambda: server.states("yard").get("1") == "UNAVAILABLE")
    assert {v: s for v, s in server.states("yard").items() if s == "READY"} == {"2": "READY", "3": "READY"}
    np.testing.assert_array_equal(infer(server, "yard", images)["mask"], expected_mask(images, 6))


def test_exported_networks_are_served_as_they_are(server, images, tmp_path):
    interface = Interface(shape=FREE, outputs=("mask", "confidence"))
    for step in (1, 2):
        network, _ = fold(at_step(small_arch("resnet18"), step))
        classes = class_table([list(names) for names in network.classifier.steps])
        metadata = Metadata(architecture=network.arch, classes=classes, step=step)
        path = tmp_path / f"{step}.onnx"
        onnx.save(to_onnx(network, metadata, interface), path)
        publish(path, metadata, interface, server.log.parent / "models", name="real")
    server.load("real")
    assert server.states("real") == {"1": "READY", "2": "READY"}
    for step in (1, 2):
        session = onnxruntime.InferenceSession(tmp_path / f"{step}.onnx", providers=["CPUExecutionProvider"])
        mask, confidence = session.run(["mask", "confidence"], {"image": images})
        served = infer(server, "real", images, step)
        assert np.ptp(confidence) > 1e-3
        np.testing.assert_allclose(served["confidence"], confidence, atol=1e-5)
        assert (served["mask"] == mask).mean() > 0.999


def test_step_0_with_a_fixed_shape_gives_all_its_outputs(server, add, images):
    interface = Interface(shape=InputShape.of(48, 64), outputs=("mask", "confidence", "logits"))
    version = add("fixed", 0, interface)
    described = server.call("models/fixed")
    assert described["versions"] == ["0"]
    assert described["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [1, 48, 64, 3]}]
    session = onnxruntime.InferenceSession(version / "model.onnx", providers=["CPUExecutionProvider"])
    outputs = infer(server, "fixed", images[:1])
    for name, expected in zip(
        interface.outputs, session.run(list(interface.outputs), {"image": images[:1]}), strict=True
    ):
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "queue", "reason"),
    [
        ("full", FREE, Queue(max_waiting=1, timeout_ms=PATIENT), "Exceeds maximum queue size"),
        ("full-fixed", InputShape.of(384, 512), Queue(max_waiting=1, timeout_ms=PATIENT), "Exceeds maximum queue size"),
        ("late", FREE, Queue(timeout_ms=1), "Request timeout expired"),
    ],
)
def test_the_queue_rejects_what_it_cannot_serve(server, add, tmp_path, name, shape, queue, reason):
    np.save(tmp_path / "images.npy", np.zeros((1, 384, 512, 3), np.uint8))
    add(name, 3, Interface(shape=shape), queue=queue)
    load = Load(server, name, tmp_path, threads=8)
    load.wait_until_started()
    time.sleep(1)
    seen = load.stop()
    assert {text for text in seen["failures"] if reason not in text} == set()
    assert seen["failures"]
    assert seen["answers"]["3"] > 0


def test_a_version_that_cannot_be_loaded_leaves_the_one_before(server, add, images):
    interface = Interface(shape=FREE)
    broken = add("solid", 1, interface).parent / "2"
    broken.mkdir()
    (broken / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(RuntimeError, match="400"):
        server.load("solid")
    np.testing.assert_array_equal(infer(server, "solid", images)["mask"], expected_mask(images, 3))


def test_a_server_takes_instances_threads_and_the_accelerator(server, add, images):
    add("settings", 1, Interface(shape=FREE), serving=Serving(2, "cpu", threads=1))
    np.testing.assert_array_equal(infer(server, "settings", images)["mask"], expected_mask(images, 3))
    loaded = server.call("models/settings/config")
    assert [(group["kind"], group["count"]) for group in loaded["instance_group"]] == [("KIND_CPU", 2)]
    assert loaded["parameters"]["intra_op_thread_count"] == {"string_value": "1"}
    add("accelerated", 1, Interface(shape=FREE), serving=Serving(accelerator="tensorrt", cache="/var/engines"))
    found = server.call("models/accelerated/config")["optimization"]["execution_accelerators"]
    assert found["gpu_execution_accelerator"][0]["name"] == "tensorrt"
    assert found["gpu_execution_accelerator"][0]["parameters"]["trt_engine_cache_path"] == "/var/engines"


def test_the_server_has_the_queue_of_the_configuration(server, add):
    add("schema", 1, Interface(shape=FREE))
    loaded = server.call("models/schema/config")
    assert loaded["max_batch_size"] == 4
    policy = loaded["dynamic_batching"]["default_queue_policy"]
    assert (policy["timeout_action"], policy["max_queue_size"]) == ("REJECT", 64)
    assert policy["default_timeout_microseconds"] == 2_000_000
