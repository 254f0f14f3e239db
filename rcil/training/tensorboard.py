"""TensorBoard logs: loss terms, learning rate and held-out mIoU, one folder per step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rcil.training.loop import Event, Listener

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@contextlib.contextmanager
def tensorboard(output: Path) -> Iterator[Listener]:
    """A listener that writes to `output/tensorboard/stepN`.

    A resumed run continues the curves and replaces what was logged after the last saved state.
    """
    writers: dict[int, SummaryWriter] = {}

    def listen(event: Event) -> None:
        if event.processed is not None or event.finished:
            return
        if event.step not in writers:
            writers[event.step] = _open(output / "tensorboard" / f"step{event.step}", event.done)
        writer = writers[event.step]
        if event.miou is not None:
            writer.add_scalar("held_out_miou", event.miou, event.done)
            return
        writer.add_scalar("lr", event.lr, event.done)
        for name, value in event.terms.items():
            writer.add_scalar(f"loss/{name}", value, event.done)

    try:
        yield listen
    finally:
        for writer in writers.values():
            writer.close()


def _open(folder: Path, first: int) -> SummaryWriter:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=first)


def both(first: Listener, second: Listener) -> Listener:
    """A listener that calls two listeners."""

    def listen(event: Event) -> None:
        first(event)
        second(event)

    return listen
