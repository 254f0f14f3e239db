"""Many clients at once while models come and go: every answer is right, or says that the queue is full."""

import http.client
import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from servers import picture, png, rows_of, server_process, unpng, write_model

from rcil_serve.http.protocol.messages import HEADER_LENGTH

CLIENTS = 64
IMAGES = [picture(seed) for seed in range(8)]
STEPS = (2, 3)
EXPECTED = {step: [rows_of(image, step) for image in IMAGES] for step in STEPS}
PICTURES = [png(image) for image in IMAGES]


def tensor_request(image):
    sent = {"name": "image", "datatype": "UINT8", "shape": [1, *image.shape]}
    sent["parameters"] = {"binary_data_size": image.nbytes}
    header = json.dumps({"inputs": [sent], "parameters": {"binary_data_output": True}}).encode()
    return header + image.tobytes(), {HEADER_LENGTH: str(len(header))}


TENSORS = [tensor_request(image) for image in IMAGES]


def uploaded(connection, index):
    """A status, and where it is 200 the step and the mask of the answer."""
    connection.request("POST", "/segment", PICTURES[index])
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        return answer.status, None, None
    return 200, int(answer.headers["X-Rcil-Step"]), unpng(content)


def inferred(connection, index):
    """The same over the Open Inference Protocol."""
    connection.request("POST", "/v2/models/rcil/infer", *TENSORS[index])
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        return answer.status, None, None
    split = int(answer.headers[HEADER_LENGTH])
    mask = np.frombuffer(content[split:], np.uint8).reshape(IMAGES[index].shape[:2])
    return 200, int(json.loads(content[:split])["model_version"]), mask


def keep_asking(address, number, stop):
    """Answers by status and step, and how many were wrong, over one connection."""
    seen = Counter(wrong=0)
    ask = (uploaded, inferred)[number % 2]
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    count = number
    while not stop.is_set():
        index = count % len(IMAGES)
        status, step, mask = ask(connection, index)
        seen[status, step] += 1
        if status == 200:
            seen["wrong"] += not np.array_equal(mask, EXPECTED[step][index])
        else:
            time.sleep(0.02)
        count += 1
    connection.close()
    return seen


def reload_in_turns(address, path, seconds, every):
    """Alternately the newer and the older model; the status of each reload."""
    until = time.monotonic() + seconds
    statuses = []
    while time.monotonic() < until:
        time.sleep(every)
        write_model(path, STEPS[(len(statuses) + 1) % 2])
        forced = {"parameters": {"force": True}}
        statuses.append(httpx.post(f"{address}/v2/repository/models/rcil/load", json=forced, timeout=60).status_code)
    return statuses


@pytest.mark.parametrize(
    ("seconds", "every"), [(3, 0.3), pytest.param(120, 3, marks=pytest.mark.slow)], ids=["short", "two minutes"]
)
def test_64_clients_with_reloads(tmp_path, seconds, every):
    path = write_model(tmp_path / "model.onnx", STEPS[0])
    stop = threading.Event()
    with (
        server_process(path, tmp_path / "log", queue=8, workers=2) as (address, _),
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        try:
            clients = [pool.submit(keep_asking, address, number, stop) for number in range(CLIENTS)]
            reloads = reload_in_turns(address, path, seconds, every)
        finally:
            stop.set()
        seen = sum((client.result() for client in clients), Counter(wrong=0))
        assert "rcil_queue_length 0.0" in httpx.get(f"{address}/metrics").text
    assert seen["wrong"] == 0
    assert {status for status, _ in seen.keys() - {"wrong"}} == {200, 429}
    assert all(seen[200, step] > 0 for step in STEPS), "both models answered"
    assert len(reloads) >= 2 and set(reloads) == {200}
