"""Models whose masks are known, and a watcher around them that tests feed by hand."""

from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from exports import described
from served import OPEN

from rcil_export.graph.interface import Interface
from rcil_serve.runtime.backends import Outputs
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Counts, Frame
from rcil_serve.stream.pipeline import SegmentedFrame
from rcil_serve.watch.alarms import Alarms, Limits
from rcil_serve.watch.events import EventLog
from rcil_serve.watch.shares import History, Reference
from rcil_serve.watch.swappable_predictor import SwappablePredictor
from rcil_serve.watch.watcher import Watcher, WatchSettings


@cache
def metadata_of(step):
    return described("resnet18", step)[1]


class Table:
    """A model that looks its rows up by the red value of a pixel; 0 where the table has none."""

    device = "here"

    def __init__(self, step, table):
        self.interface = Interface(shape=OPEN)
        self.metadata = metadata_of(step)
        self.sha256 = f"{step}" * 64
        self.name = f"step{step}.onnx"
        self.lut = np.zeros(256, np.uint8)
        for red, row in table.items():
            self.lut[red] = row
        self.error, self.runs, self.closed = None, 0, 0

    def run(self, batch):
        """See `Backend.run`."""
        assert not self.closed, "a closed model was run"
        if self.error is not None:
            raise self.error
        self.runs += 1
        return Outputs(self.lut[batch[..., 0]], None)

    def close(self):
        """See `Backend.close`."""
        self.closed += 1


@dataclass
class Bench:
    """A watcher and what it is given; `events` holds what it said."""

    current: Predictor
    previous: Predictor | None = None
    shadow: object = None
    settings: WatchSettings = field(default_factory=lambda: WatchSettings(every=1, window=10.0))
    limits: Limits = field(default_factory=lambda: Limits(patience=2))
    reference: Reference = field(default_factory=lambda: Reference(1.0))
    rules: tuple = ()
    pictures: object = None
    view: object = None

    def __post_init__(self):
        self.events, self.now = [], 0.0
        self.log = EventLog(None, self.events.append)
        self.alarms, self.predictor = Alarms(self.limits, self.rules), SwappablePredictor(self.current)
        later = () if self.shadow is None else self.shadow.predictor.classes
        self.history = History(self.current.classes, later, Counts())
        if self.shadow is not None:
            self.shadow._log = self.log
        self.watcher = Watcher(
            self.predictor,
            self.current,
            self.previous,
            self.shadow,
            self.settings,
            self.reference,
            self.alarms,
            self.log,
            self.history,
            self.rules,
            self.pictures,
            self.view,
            clock=lambda: self.now,
        )
        self.index = 0

    def segment(self, pixels):
        """A frame that has been through the pipeline's second stage."""
        frame = Frame(self.index, self.index, self.index / 10, pixels, 0.0)
        self.index += 1
        return SegmentedFrame(frame, self.predictor.segment_all([pixels])[0], 0.0)

    def show(self, pixels, times=1):
        """Frames, ten a second."""
        for _ in range(times):
            self.watcher.write(self.segment(pixels))

    def kinds(self):
        return [event.kind for event in self.events]


def scene(*reds):
    """A picture [32, 20 * len(reds), 3] of upright bars with these red values."""
    row = np.repeat(np.array(reds, np.uint8), 20)
    return np.stack([np.tile(row, (32, 1)), *[np.full((32, len(row)), 50, np.uint8)] * 2], axis=2)


@pytest.fixture
def kit():
    return SimpleNamespace(
        scene=scene, Bench=Bench, Table=Table, model=lambda step, table: Predictor(Table(step, table))
    )
