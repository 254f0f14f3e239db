"""Slots that are made when they are needed and used again, by any number of threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from rcil.log import log
from rcil_export.engine.errors import EngineError
from rcil_export.engine.slot import Slot


class SlotPool:
    """At most `limit` slots. A thread that finds all of them in use waits for one.

    Args:
        make: Makes a slot, or raises.
        limit: Each slot takes memory of the GPU, and more than two in flight gain nothing.
    """

    def __init__(self, make: Callable[[], Slot], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._changed = threading.Condition()
        self._free: list[Slot] = []
        self._in_use = 0
        self._closed = False

    @contextlib.contextmanager
    def slot(self) -> Iterator[Slot]:
        """A slot for the block alone."""
        slot = self._take()
        try:
            yield slot
        finally:
            with self._changed:
                self._free.append(slot)
                self._in_use -= 1
                self._changed.notify_all()

    def _take(self) -> Slot:
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._closed or self._free or self._in_use < self._limit)
                if self._closed:
                    raise EngineError("the engine is closed", "Open it again.")
                slot = self._free.pop() if self._free else self._made()
                if slot is not None:
                    self._in_use += 1
                    return slot

    def _made(self) -> Slot | None:
        """A new slot; None where the GPU has no room for a further one, so that those in use must do."""
        try:
            return self._make()
        except EngineError as error:
            if not self._in_use:
                raise
            self._limit = self._in_use
            log.info("%d frames in flight at most: %s", self._limit, error.message)
            return None

    def close(self) -> None:
        """Wait for the frames in flight, refuse new ones, and give everything back; harmless when called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._in_use)
            free, self._free = self._free, []
        for slot in free:
            slot.close()
