"""Runs requests of different clients in one batch of the model."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil_serve.runtime.backends import Backend, Outputs

LANES = 2
"""Batches that run at once: a second one keeps the cores or the GPU busy while the first begins and ends."""


class _Waiting:
    """One request, until it has a result."""

    def __init__(self, batch: NDArray[Any]) -> None:
        self.batch = batch
        self.wake = threading.Event()
        self.group: list[_Waiting] | None = None
        """Requests that the caller of this one runs; None while another caller runs it."""
        self.outputs: Outputs | None = None
        self.error: BaseException | None = None

    def result(self) -> Outputs:
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


class BatchingBackend:
    """Joins the batches of callers that wait at the same time.

    While `lanes` batches run, further callers wait. The oldest of them then runs all that wait with images of its size,
    as far as the largest batch allows. Nobody waits for others to come, so a single client loses nothing.

    Args:
        inner: The model.
        max_batch: Images per batch; a request with more runs alone.
        lanes: Number of batches that run at once.
    """

    def __init__(self, inner: Backend, max_batch: int, lanes: int = LANES) -> None:
        self.name, self.sha256, self.device = inner.name, inner.sha256, inner.device
        self.metadata, self.interface = inner.metadata, inner.interface
        self.max_batch = max_batch
        self._inner, self._free = inner, lanes
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self.runs = self.images = 0
        """Number of batches that the model ran, and of images in them."""

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`."""
        mine = _Waiting(batch)
        with self._lock:
            if self._free:
                self._free -= 1
                mine.group = [mine]
            else:
                self._queue.append(mine)
        if mine.group is None:
            mine.wake.wait()
        if mine.group is not None:
            self._lead(mine.group)
        return mine.result()

    def _lead(self, group: list[_Waiting]) -> None:
        """Run a group of requests, then let the next one go."""
        try:
            self._run(group)
        finally:
            for one in group[1:]:
                one.wake.set()
            with self._lock:
                if self._queue:
                    following = self._take()
                    following[0].group = following
                    following[0].wake.set()
                else:
                    self._free += 1

    def _take(self) -> list[_Waiting]:
        """Remove the oldest request and later ones of the same size from the queue, up to the largest batch."""
        group, left = [self._queue.popleft()], deque[_Waiting]()
        room = self.max_batch - len(group[0].batch)
        for one in self._queue:
            if one.batch.shape[1:] == group[0].batch.shape[1:] and len(one.batch) <= room:
                group.append(one)
                room -= len(one.batch)
            else:
                left.append(one)
        self._queue = left
        return group

    def _run(self, group: list[_Waiting]) -> None:
        """Run requests together. If that fails, run each alone, so that one cannot spoil the others."""
        try:
            joined = group[0].batch if len(group) == 1 else np.concatenate([one.batch for one in group])
            outputs = self._inner.run(joined)
            with self._lock:
                self.runs, self.images = self.runs + 1, self.images + len(joined)
        except BaseException as error:
            if len(group) == 1:
                group[0].error = error
                return
            for one in group:
                self._run([one])
            return
        start = 0
        for one in group:
            part = slice(start, start + len(one.batch))
            confidence = None if outputs.confidence is None else outputs.confidence[part]
            one.outputs = Outputs(outputs.mask[part], confidence)
            start = part.stop

    def close(self) -> None:
        """See `Backend.close`."""
        self._inner.close()


def batched(backend: Backend, max_batch: int | None = None) -> Backend:
    """Add batching to a model.

    Args:
        backend: The model; it is returned as it is if nothing can be joined.
        max_batch: Images per batch. None: as many as the model accepts on a GPU, and 1 on a CPU, where larger batches
            are slower.
    """
    largest = backend.interface.shape.batch.high
    if max_batch is not None and max_batch > largest:
        backend.close()
        raise ConfigError(
            f"{backend.name} accepts batches of up to {largest} images, not {max_batch}",
            f"Choose a smaller --max-batch, or export the model with --batch 1:1:{max_batch}.",
        )
    limit = max_batch or (largest if backend.device.startswith("GPU") else 1)
    return backend if limit == 1 or backend.interface.shape.batch.fixed else BatchingBackend(backend, limit)
