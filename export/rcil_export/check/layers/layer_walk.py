"""The order in which layers of two networks run, so that few of their values are in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import TypeVar

Task = TypeVar("Task", bound=Hashable)
Value = TypeVar("Value")


def walk(
    needs: Mapping[Task, Sequence[Task]],
    compute: Callable[[Task, Mapping[Task, Value]], Value],
    is_last: Callable[[Task], bool],
) -> Iterator[tuple[Task, Value]]:
    """Compute every task from what it needs; values are forgotten once nobody needs them any more.

    Args:
        needs: All tasks, each with those whose values it reads, in the preferred order.
        compute: Gives the value of a task, from all values that are still known.
        is_last: Tasks that consume values; they run as soon as they can.
    """
    rank = {task: at for at, task in enumerate(needs)}
    readers = Counter(source for sources in needs.values() for source in set(sources))
    values: dict[Task, Value] = {}
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    ready: list[Task] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        task = min(ready, key=lambda task: (not is_last(task), rank[task]))
        ready.remove(task)
        value = compute(task, values)
        yield task, value
        if readers[task]:
            values[task] = value
        for source in set(needs[task]):
            readers[source] -= 1
            if not readers[source]:
                del values[source]
        sorter.done(task)
