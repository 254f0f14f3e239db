"""Decode, infer and write side by side: three threads, two bounded queues, one first error."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rcil.core.images import Image
from rcil_serve.runtime.predictor import Layout, Segmentation
from rcil_serve.stream.channel import Channel, Failure, StoppedError
from rcil_serve.stream.frames import Frame, Item, Sound, Stages
from rcil_serve.stream.sources import Source

WAITING = 4
"""Items between two stages: enough to even out their pace, little enough to keep lag and memory small."""
TICK = 0.1
NICE = 15
"""Of the threads beside inference, on the scale from 0 (as important) to 19."""


@dataclass(frozen=True)
class Seen:
    """A frame and what the model sees in it."""

    frame: Frame
    found: Segmentation
    infer_seconds: float
    """Its share of the time of its batch."""


class Segments(Protocol):
    """What the pipeline asks of a model, or of several that look like one."""

    @property
    def layout(self) -> Layout:
        """How many frames go in at once."""

    def segment_all(self, images: Sequence[Image]) -> list[Segmentation]:
        """Masks of RGB images [H, W, 3]."""


class Sink(Protocol):
    """Takes what the pipeline gives."""

    def write(self, seen: Seen) -> None:
        """A frame with its segmentation, in the order of time."""

    def write_sound(self, sound: Sound) -> None:
        """A packet of sound."""


def run_pipeline(
    source: Source,
    predictor: Segments,
    sink: Sink,
    stages: Stages,
    tick: Callable[[], None] = lambda: None,
) -> bool:
    """Run until the source ends; False if the user ended it. All threads have ended when this returns or raises.

    Ctrl-C ends the source, and what was read by then goes through to the sink; a second Ctrl-C is an error. The first
    error of any stage ends all.

    Args:
        source: Its frames wait for room; those of a live source make room by dropping the oldest.
        predictor: Segments frames.
        sink: Gets every frame that was segmented.
        stages: Notes how long every stage takes.
        tick: Called ten times a second.
    """
    failure = Failure()

    def drop(item: Item) -> None:
        del item
        source.counts.dropped += 1

    decoded: Channel[Item] = Channel(
        WAITING, failure, drop if source.info.live else None, lambda item: isinstance(item, Frame)
    )
    segmented: Channel[Seen | Sound] = Channel(WAITING, failure)
    ended = threading.Event()
    stages_left = [
        _Stage("decode", failure, source, lambda: _decode(source, decoded, stages, ended), decoded.close),
        _Stage(
            "infer", failure, source, lambda: _infer(decoded, predictor, segmented, source, stages), segmented.close
        ),
        _Stage("write", failure, source, lambda: _write(segmented, sink, source, stages), lambda: None),
    ]
    finished = True
    for stage in stages_left:
        stage.start()
    while stages_left:
        try:
            if stages_left[0].over.wait(TICK):
                stages_left[0].join()
                del stages_left[0]
            tick()
        except KeyboardInterrupt as interrupt:
            if ended.is_set():
                failure.fail(interrupt)
            finished = False
            ended.set()
            source.stop()
        except BaseException as error:
            failure.fail(error)
            source.stop()
    if failure.error is not None:
        raise failure.error
    tick()
    return finished


class _Stage(threading.Thread):
    """A thread that does its work, notes its error, stops the source after one, and closes what it feeds.

    `over` tells when it has ended. `join` cannot: if Ctrl-C interrupts it, Python 3.11 takes the thread for ended.
    """

    def __init__(
        self, name: str, failure: Failure, source: Source, work: Callable[[], None], close: Callable[[], None]
    ) -> None:
        super().__init__(name=f"rcil-{name}")
        self.over = threading.Event()
        self._failure, self._source, self._work, self._close = failure, source, work, close

    def run(self) -> None:
        """See `threading.Thread.run`."""
        try:
            self._work()
        except StoppedError:
            pass
        except BaseException as error:
            self._failure.fail(error)
            self._source.stop()
        finally:
            self._close()
            self.over.set()


def _yield_to_inference() -> None:
    """Let this thread wait where all cores are busy: a model on the CPU is as slow as the slowest of its threads.

    Linux has priorities of threads; elsewhere `setpriority` means the whole process, so nothing is done.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _decode(source: Source, decoded: Channel[Item], stages: Stages, ended: threading.Event) -> None:
    _yield_to_inference()
    items = iter(source)
    while not ended.is_set():
        start = time.perf_counter()
        item = next(items, None)
        if item is None:
            return
        stages.decode.add(time.perf_counter() - start)
        decoded.put(item)


def _infer(
    decoded: Channel[Item], predictor: Segments, segmented: Channel[Seen | Sound], source: Source, stages: Stages
) -> None:
    for group in _batches(decoded, predictor.layout.batch):
        frames = [item for item in group if isinstance(item, Frame)]
        start = time.perf_counter()
        found = predictor.segment_all([frame.pixels for frame in frames]) if frames else []
        share = (time.perf_counter() - start) / max(1, len(frames))
        source.counts.inferred += len(frames)
        results = iter(found)
        for item in group:
            if isinstance(item, Sound):
                segmented.put(item)
            else:
                stages.infer.add(share)
                segmented.put(Seen(item, next(results), share))


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Groups with `size` frames each and the sound between them; the last may have fewer."""
    group: list[Item] = []
    frames = 0
    for item in items:
        group.append(item)
        frames += isinstance(item, Frame)
        if frames == size or (isinstance(item, Sound) and frames == 0):
            yield group
            group, frames = [], 0
    if group:
        yield group


def _write(segmented: Channel[Seen | Sound], sink: Sink, source: Source, stages: Stages) -> None:
    _yield_to_inference()
    for item in segmented:
        if isinstance(item, Sound):
            sink.write_sound(item)
            continue
        start = time.perf_counter()
        sink.write(item)
        now = time.perf_counter()
        stages.write.add(now - start)
        stages.lag.add(now - item.frame.ready)
        source.counts.written += 1
