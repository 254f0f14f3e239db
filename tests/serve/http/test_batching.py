import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from servers import ANY_SIZE, FIXED, Wrapped, client_of, picture, png, rows_of, unpng, write_model

from rcil.core.errors import ConfigError, RunError
from rcil_serve.http.app import make_app
from rcil_serve.http.batching import BatchingBackend, batched
from rcil_serve.http.options import HttpOptions
from rcil_serve.runtime.backends import open_backend


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "m.onnx", 2, ANY_SIZE)


class Gate(Wrapped):
    """A model whose first run waits until it is told to go on; notes the sizes of its batches."""

    def __init__(self, inner, fail=lambda batch: False):
        super().__init__(inner)
        self.inside, self.go_on, self.sizes, self.fail = threading.Event(), threading.Event(), [], fail

    def run(self, batch):
        self.sizes.append(len(batch))
        if not self.inside.is_set():
            self.inside.set()
            self.go_on.wait(20)
        if self.fail(batch):
            raise RunError("too much", "less")
        return super().run(batch)


def run_together(backend, gate, batches):
    """Results or errors: the first batch runs alone, and the others wait for it."""

    def ask(batch):
        try:
            return backend.run(batch)
        except RunError as error:
            return error

    with ThreadPoolExecutor(len(batches)) as pool:
        first = pool.submit(ask, batches[0])
        assert gate.inside.wait(20)
        others = []
        for count, batch in enumerate(batches[1:], start=1):
            others.append(pool.submit(ask, batch))
            while len(backend._queue) < count:
                time.sleep(0.001)
        gate.go_on.set()
        return [future.result(20) for future in (first, *others)]


def test_those_who_wait_share_batches_and_get_their_own_masks(path):
    gate = Gate(open_backend(path, "cpu", 1))
    backend = BatchingBackend(gate, 4, lanes=1)
    batches = [
        np.stack([picture(10 * index + n, 24, 40) for n in range(count)])
        for index, count in enumerate([1, 1, 2, 1, 3, 1])
    ]
    found = run_together(backend, gate, batches)
    for batch, one in zip(batches, found, strict=True):
        np.testing.assert_array_equal(one.mask, rows_of(batch, 2))
        assert one.confidence.shape == one.mask.shape
    assert gate.sizes == [1, 4, 4], "1 + 2 + 1, then 3 + 1"
    assert (backend.runs, backend.images) == (3, 9)


def test_only_images_of_one_size_share_a_batch(path):
    gate = Gate(open_backend(path, "cpu", 1))
    sizes = [(24, 40), (24, 40), (48, 40), (24, 40), (48, 40)]
    batches = [picture(seed, *size)[None] for seed, size in enumerate(sizes)]
    found = run_together(BatchingBackend(gate, 4, lanes=1), gate, batches)
    for batch, one in zip(batches, found, strict=True):
        np.testing.assert_array_equal(one.mask, rows_of(batch, 2))
    assert gate.sizes == [1, 2, 2]


def test_a_request_that_fails_spoils_no_other(path):
    bad = np.full((1, 24, 40, 3), 7, np.uint8)
    gate = Gate(open_backend(path, "cpu", 1), lambda batch: (batch == 7).all((1, 2, 3)).any())
    batches = [picture(1)[None], picture(2)[None], bad, picture(3)[None]]
    first, second, third, fourth = run_together(BatchingBackend(gate, 4, lanes=1), gate, batches)
    assert isinstance(third, RunError)
    for batch, one in ((batches[0], first), (batches[1], second), (batches[3], fourth)):
        np.testing.assert_array_equal(one.mask, rows_of(batch, 2))
    assert gate.sizes == [1, 3, 1, 1, 1]


def test_a_single_client_waits_for_nobody(path):
    backend = BatchingBackend(open_backend(path, "cpu", 1), 4)
    for seed in range(5):
        np.testing.assert_array_equal(backend.run(picture(seed)[None]).mask[0], rows_of(picture(seed), 2))
    assert (backend.runs, backend.images, backend._free) == (5, 5, 2)


def test_two_batches_run_at_once(path):
    meeting = threading.Barrier(2, timeout=120)
    backend = BatchingBackend(Wrapped(open_backend(path, "cpu", 1), meeting.wait), 4)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda seed: backend.run(picture(seed)[None]), range(2)))
    assert [len(one.mask) for one in found] == [1, 1] and backend.runs == 2


def test_a_fixed_batch_is_left_alone(tmp_path):
    backend = open_backend(write_model(tmp_path / "m.onnx", 1, FIXED), "cpu", 1)
    assert batched(backend, 1) is backend
    with pytest.raises(ConfigError, match="up to 1 images, not 2"):
        batched(backend, 2)


def test_batches_are_for_gpus_unless_they_are_asked_for(path):
    backend = Wrapped(open_backend(path, "cpu", 1))
    assert batched(backend) is backend
    assert batched(backend, 3).max_batch == 3
    backend.device = "GPU (CUDA)"
    assert batched(backend).max_batch == 4


def test_clients_of_a_server_share_batches(path):
    gates = []

    def opener(file):
        gates.append(Wrapped(open_backend(file, "cpu", 1), lambda: time.sleep(0.05)))
        return gates[-1]

    images = [picture(seed, 48, 64) for seed in range(12)]
    with (
        client_of(make_app(HttpOptions(path, threads=1, max_batch=4), opener)) as client,
        ThreadPoolExecutor(12) as pool,
    ):
        answers = list(pool.map(lambda image: client.post("/segment", content=png(image)), images))
        for image, answer in zip(images, answers, strict=True):
            np.testing.assert_array_equal(unpng(answer.content), rows_of(image, 2))
        lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(lines["rcil_batched_images_total"]) == 13, "and the sample at the start"
    assert float(lines["rcil_batches_total"]) < 10
