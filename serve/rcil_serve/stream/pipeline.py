"""Decodes, infers, paints and encodes concurrently: four threads connected by three bounded queues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rcil_serve.runtime.backends import Stoppable
from rcil_serve.runtime.planes import Picture
from rcil_serve.runtime.predictor import Layout, Segmentation
from rcil_serve.stream.channel import Channel, Failure, StoppedError
from rcil_serve.stream.frames import Frame, Item, Sound, Stages
from rcil_serve.stream.priority import yield_to_inference
from rcil_serve.stream.sources import Source

WAITING = 4
"""Queue length between two stages: long enough to even out their speeds, short enough for low lag and memory."""
WAITING_PAINTED = 2
"""Queue length before the sink; painting and encoding take about the same time for every frame."""
TICK = 0.1


@dataclass(frozen=True)
class SegmentedFrame:
    """A frame and its segmentation."""

    frame: Frame
    found: Segmentation
    infer_seconds: float
    """Inference time of the batch divided by its number of frames."""
    drawn: Picture | None = None
    """The picture for the video; None until it is painted, or if there is no video."""
    paint_seconds: float = 0.0
    """Time that painting took."""


class FramePredictor(Protocol):
    """Segments frames: a `Predictor`, or several models behind the same interface."""

    @property
    def layout(self) -> Layout:
        """Its `batch` is the number of frames per call."""

    def segment_all(self, images: Sequence[Picture]) -> list[Segmentation]:
        """Segment images."""


class Sink(Protocol):
    """Receives the results of the pipeline."""

    def write(self, seen: SegmentedFrame) -> None:
        """Write a segmented frame; frames arrive in order of time."""

    def write_sound(self, sound: Sound) -> None:
        """Write an audio packet."""


def run_pipeline(
    source: Source,
    predictor: FramePredictor,
    sink: Sink,
    stages: Stages,
    tick: Callable[[], None] = lambda: None,
    paint: Callable[[SegmentedFrame], SegmentedFrame] = lambda seen: seen,
) -> bool:
    """Run until the source ends; return False if the user interrupted it. All threads have ended on return or raise.

    Ctrl-C stops the source, and frames that were already read still reach the sink; a second Ctrl-C raises. The first
    error of any stage stops all stages.

    Args:
        source: Source of the frames. A file waits while the queue is full; a live source drops the oldest frames.
        predictor: Segments the frames.
        sink: Receives every segmented frame.
        stages: Records how long every stage takes.
        tick: Called ten times per second.
        paint: Prepares a segmented frame for the sink, while the sink still writes the one before.
    """
    failure = Failure()

    def drop(item: Item) -> None:
        del item
        source.counts.dropped += 1

    decoded: Channel[Item] = Channel(
        WAITING, failure, drop if source.info.live else None, lambda item: isinstance(item, Frame)
    )
    segmented: Channel[SegmentedFrame | Sound] = Channel(WAITING, failure)
    painted: Channel[SegmentedFrame | Sound] = Channel(WAITING_PAINTED, failure)
    ended = threading.Event()
    stages_left = [
        Stage("decode", failure, source, lambda: _decode(source, decoded, stages, ended), decoded.close),
        Stage("infer", failure, source, lambda: _infer(decoded, predictor, segmented, source, stages), segmented.close),
        Stage("paint", failure, source, lambda: _paint(segmented, paint, painted), painted.close),
        Stage("write", failure, source, lambda: _write(painted, sink, source, stages), lambda: None),
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
            if isinstance(predictor, Stoppable):
                predictor.stop()
        except BaseException as error:
            failure.fail(error)
            source.stop()
    if failure.error is not None:
        raise failure.error
    tick()
    return finished


class Stage(threading.Thread):
    """A thread that runs one stage. An error is recorded and stops the source; `close` is always called.

    `over` is set at the end. `join` is not enough: if Ctrl-C interrupts it, Python 3.11 considers the thread ended.
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


def _decode(source: Source, decoded: Channel[Item], stages: Stages, ended: threading.Event) -> None:
    yield_to_inference()
    items = iter(source)
    while not ended.is_set():
        start = time.perf_counter()
        item = next(items, None)
        if item is None:
            return
        stages.decode.add(time.perf_counter() - start)
        decoded.put(item)


def _infer(
    decoded: Channel[Item],
    predictor: FramePredictor,
    segmented: Channel[SegmentedFrame | Sound],
    source: Source,
    stages: Stages,
) -> None:
    for group in _batches(decoded, predictor.layout.batch):
        frames = [item for item in group if isinstance(item, Frame)]
        start = time.perf_counter()
        found = predictor.segment_all([frame.picture for frame in frames]) if frames else []
        share = (time.perf_counter() - start) / max(1, len(frames))
        source.counts.inferred += len(frames)
        results = iter(found)
        for item in group:
            if isinstance(item, Sound):
                segmented.put(item)
            else:
                stages.infer.add(share)
                segmented.put(SegmentedFrame(item, next(results), share))


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Group items into batches of `size` frames, with the sound in between; the last batch may be smaller."""
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


def _paint(
    segmented: Channel[SegmentedFrame | Sound],
    paint: Callable[[SegmentedFrame], SegmentedFrame],
    painted: Channel[SegmentedFrame | Sound],
) -> None:
    yield_to_inference()
    for item in segmented:
        if isinstance(item, Sound):
            painted.put(item)
            continue
        start = time.perf_counter()
        seen = paint(item)
        painted.put(replace(seen, paint_seconds=time.perf_counter() - start))


def _write(painted: Channel[SegmentedFrame | Sound], sink: Sink, source: Source, stages: Stages) -> None:
    yield_to_inference()
    for item in painted:
        if isinstance(item, Sound):
            sink.write_sound(item)
            continue
        start = time.perf_counter()
        sink.write(item)
        now = time.perf_counter()
        if item.drawn is not None:
            stages.paint.add(item.paint_seconds)
        stages.write.add(item.paint_seconds + now - start)
        stages.lag.add(now - item.frame.ready)
        source.counts.written += 1
