"""Runs requests of different clients in one batch of the model."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil_serve.runtime.backends import Backend, Outputs


class _Waiting:
    """One request, until it has a result."""

    def __init__(self, batch: NDArray[Any]) -> None:
        self.batch = batch
        self.wake = threading.Event()
        self.outputs: Outputs | None = None
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.outputs is not None or self.error is not None

    def result(self) -> Outputs:
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


class BatchingBackend:
    """Joins the batches of callers that wait at the same time.

    While the model runs, further callers wait. The oldest of them then runs all that wait with images of its size, as
    far as the model's largest batch allows. Nobody waits for others to come, so a single client loses nothing.

    Args:
        inner: The model.
    """

    def __init__(self, inner: Backend) -> None:
        self.name, self.sha256, self.device = inner.name, inner.sha256, inner.device
        self.metadata, self.interface = inner.metadata, inner.interface
        self._inner, self._max = inner, inner.interface.shape.batch.high
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._running = False
        self.runs = self.images = 0
        """Number of batches that the model ran, and of images in them."""

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`."""
        mine = _Waiting(batch)
        with self._lock:
            self._queue.append(mine)
            leads, self._running = not self._running, True
        if not leads:
            mine.wake.wait()
        if not mine.done:
            self._lead()
        return mine.result()

    def _lead(self) -> None:
        """Run the oldest request, which is that of the caller, with those that fit; then wake the next one."""
        with self._lock:
            group = self._take()
        try:
            self._run(group)
        finally:
            for one in group[1:]:
                one.wake.set()
            with self._lock:
                if self._queue:
                    self._queue[0].wake.set()
                else:
                    self._running = False

    def _take(self) -> list[_Waiting]:
        """Remove the oldest request and later ones of the same size from the queue, up to the largest batch."""
        group, left = [self._queue.popleft()], deque[_Waiting]()
        room = self._max - len(group[0].batch)
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


def batched(backend: Backend) -> Backend:
    """The backend with batching, if the model accepts batches of several sizes."""
    return backend if backend.interface.shape.batch.fixed else BatchingBackend(backend)
