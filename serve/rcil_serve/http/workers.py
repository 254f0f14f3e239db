"""Worker threads with a bounded queue of requests."""

from __future__ import annotations

import contextlib
import threading
from asyncio import wait, wrap_future
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from rcil_serve.http.protocol.answers import RefusalError

T = TypeVar("T")


class Workers:
    """A thread pool with a limited number of slots for requests.

    A request takes a slot before its body is read, so slots also bound memory. It releases the slot when its thread is
    free again, even if the client no longer waits.

    Args:
        threads: Number of threads.
        queue: Number of additional slots for waiting requests.
    """

    def __init__(self, threads: int, queue: int) -> None:
        self.capacity = threads + queue
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rcil-worker")
        self._lock = threading.Lock()
        self._in_use = 0

    @property
    def in_use(self) -> int:
        """Number of slots in use."""
        return self._in_use

    @contextlib.contextmanager
    def slot(self) -> Iterator[Slot]:
        """Reserve a slot for one request; refuse with 429 if none is free."""
        with self._lock:
            if self._in_use >= self.capacity:
                raise RefusalError(429, f"{self.capacity} requests are already in progress", "Retry later.")
            self._in_use += 1
        slot = Slot(self._pool)
        try:
            yield slot
        finally:
            slot.when_free(self._release)

    def close(self) -> None:
        """Let the threads finish their current work."""
        self._pool.shutdown(cancel_futures=True)

    def _release(self) -> None:
        with self._lock:
            self._in_use -= 1


class Slot:
    """Runs the work of one request."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._work: Future[Any] | None = None

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """Run `work` in the pool. After `seconds`, refuse with 503 if it has not started, or 504 if it still runs."""
        future = self._pool.submit(work)
        self._work = future
        answer = wrap_future(future)
        done, _ = await wait({answer}, timeout=max(0.0, seconds))
        if done:
            return answer.result()
        begun = not future.cancel()
        answer.cancel()
        if begun:
            raise RefusalError(504, "the model did not answer in time", "Send a smaller image, or raise --timeout.")
        raise RefusalError(503, "no worker became free in time", "Retry later.")

    def when_free(self, release: Callable[[], None]) -> None:
        """Call `release` once no thread works for this slot."""
        if self._work is None:
            release()
        else:
            self._work.add_done_callback(lambda _: release())
