"""Bounded queues between threads, with defined ways to end, fail and drop items."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_ITEMS = 1000
"""Maximum number of items in a channel that drops some, if others are never dropped."""


class StoppedError(Exception):
    """Raised in a stage of the pipeline after another stage failed."""


class Failure:
    """Holds the first error of a pipeline, and wakes all waiting threads."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._waiting: list[threading.Condition] = []

    def watch(self, condition: threading.Condition) -> None:
        """Notify this condition on failure."""
        self._waiting.append(condition)

    def fail(self, error: BaseException) -> None:
        """Record an error, unless there already is one."""
        with self._lock:
            self.error = self.error or error
        for condition in self._waiting:
            with condition:
                condition.notify_all()


class Channel(Generic[T]):
    """A queue of at most `size` items.

    Args:
        size: Maximum number of items; with `on_drop`, of droppable items.
        failure: Failure of the pipeline; once set, `put` and iteration raise `StoppedError`.
        on_drop: If None, `put` waits for room. Otherwise the oldest droppable item is removed and passed to it.
        may_drop: Decides which items may be dropped.
    """

    def __init__(
        self,
        size: int,
        failure: Failure,
        on_drop: Callable[[T], None] | None = None,
        may_drop: Callable[[T], bool] = lambda item: True,
    ) -> None:
        self._items: deque[T] = deque()
        self._size, self._failure, self._on_drop, self._may_drop = size, failure, on_drop, may_drop
        self._changed = threading.Condition()
        self._closed = False
        failure.watch(self._changed)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Append an item."""
        with self._changed:
            if self._on_drop is not None and self._may_drop(item) and not self._has_room(item):
                self._drop_oldest(self._on_drop)
            while not self._has_room(item) and self._failure.error is None:
                self._changed.wait()
            if self._failure.error is not None:
                raise StoppedError
            self._items.append(item)
            self._changed.notify_all()

    def _has_room(self, item: T) -> bool:
        """Whether an item fits. In a channel that drops items, those that must not be dropped displace no others."""
        if self._on_drop is None:
            return len(self._items) < self._size
        if self._may_drop(item):
            return sum(map(self._may_drop, self._items)) < self._size
        return len(self._items) < MAX_ITEMS

    def _drop_oldest(self, on_drop: Callable[[T], None]) -> None:
        for index, item in enumerate(self._items):
            if self._may_drop(item):
                del self._items[index]
                on_drop(item)
                return

    def close(self) -> None:
        """Declare that no more items will be put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                while not self._items and not self._closed and self._failure.error is None:
                    self._changed.wait()
                if self._failure.error is not None:
                    raise StoppedError
                if not self._items:
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
