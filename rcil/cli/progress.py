"""The progress and the results of a training on the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from rcil.cli.heartbeat import heartbeat
from rcil.core.log import Notify, is_quiet
from rcil.hardware.devices import device_notices
from rcil.hardware.processes import device_for, started
from rcil.tasks.task import TrainingSection
from rcil.training.estimate import duration
from rcil.training.loop import Event, Listener


@dataclass
class Pace:
    """The speed of a step, computed from its events."""

    clock: Callable[[], float] = time.perf_counter
    started: float = 0.0
    first: int = 0
    """Iterations that were done before this process started."""
    done: int = 0
    total: int = 0
    images: int = 0
    step: int = -1

    def follow(self, event: Event) -> None:
        """Update from an event; a new step, or the same step of another run, resets the speed."""
        if event.step != self.step or event.done < self.done:
            self.step, self.started, self.first, self.images = event.step, self.clock(), event.done, 0
        else:
            self.images += event.images
        self.done, self.total = event.done, event.total

    @property
    def text(self) -> str:
        """Images per second and the remaining time of the step; empty until two iterations are done."""
        passed = self.clock() - self.started
        if not self.images or passed <= 0 or self.done == self.first:
            return ""
        left = (self.total - self.done) * passed / (self.done - self.first)
        return f"{self.images / passed:.1f} images/s, {duration(left)} left"


@contextlib.contextmanager
def progress(*, quiet: bool = False) -> Iterator[Listener]:
    """Show a progress bar per step on a terminal; elsewhere one line per epoch, and one every half minute.

    Args:
        quiet: Print nothing to standard output, which holds JSON; what is printed every half minute goes to standard
            error.
    """
    quiet = quiet or is_quiet()
    follows = started()[0] > 0
    console = Console(stderr=quiet, quiet=quiet)
    terminal = sys.stdout.isatty() and not quiet
    columns = (
        TextColumn("step {task.fields[step]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with (
        Progress(*columns, console=console, disable=not terminal) as bars,
        heartbeat("preparing the training", terminal=terminal or follows) as beat,
    ):
        tasks: dict[int, TaskID] = {}
        pace = Pace()

        def listen(event: Event) -> None:
            if event.step not in tasks:
                tasks[event.step] = bars.add_task("", total=event.total, step=event.step, note="")
            if event.processed is not None:
                done, total = event.processed
                note = f"processing whole images, {done} of {total}"
                if done == total:
                    note = f"fitting the classifier to {total} whole images"
                bars.update(tasks[event.step], note=note)
                beat.status = f"step {event.step}: {note}"
                return
            pace.follow(event)
            if event.miou is not None or event.finished:
                text = f"step {event.step}, epoch {event.epoch + 1}/{event.epochs}"
                measured = "" if event.miou is None else f"held-out mIoU {100 * event.miou:.1f} %"
                console.print(f"{text}: {', '.join(filter(None, (measured, pace.text)))}".removesuffix(": "))
                beat.status = f"{text} is finished"
                beat.restart()
            else:
                terms = " ".join(f"{name} {value:.3f}" for name, value in event.terms.items())
                bars.update(tasks[event.step], completed=pace.done, note=f"{terms}  {pace.text}")
                where = f"step {event.step}, iteration {pace.done} of {pace.total}"
                beat.status = ", ".join(filter(None, (where, terms, pace.text)))

        yield listen


def announce_training(settings: TrainingSection, processes: int, say: Notify) -> None:
    """Report the device and how to use idle GPUs; raise if the requested GPU does not exist."""
    device = device_for(settings.device)
    pieces = settings.batch // settings.accumulate
    for line in device_notices(device, settings.device, command=sys.argv[1:], batch=pieces, processes=processes):
        say(line)
