import threading
from fractions import Fraction

import numpy as np
import pytest

from rcil.core.errors import RunError
from rcil_serve.runtime.predictor import Layout
from rcil_serve.stream.frames import Counts, Frame, SourceInfo, Stages
from rcil_serve.stream.pipeline import run_pipeline


class Endless:
    """A source that delivers frames until it is stopped."""

    def __init__(self):
        self.info = SourceInfo("x", (4, 4), Fraction(10), Fraction(1, 10), live=True)
        self.counts, self.ended = Counts(), threading.Event()

    def __iter__(self):
        index = 0
        while not self.ended.wait(0.01):
            yield Frame(index, index, index / 10, np.zeros((4, 4, 3), np.uint8), 0.0)
            index += 1

    def stop(self):
        self.ended.set()

    def close(self):
        pass


class Away:
    """A model on a server that does not come back."""

    layout = Layout()

    def __init__(self):
        self.waiting, self.stopped = threading.Event(), threading.Event()

    def segment_all(self, images):
        self.waiting.set()
        assert self.stopped.wait(20)
        raise RunError("the server is away", "wait")

    def stop(self):
        self.stopped.set()


class Nowhere:
    def write(self, seen):
        raise AssertionError("nothing was segmented")

    def write_sound(self, sound):
        pass


def test_ctrl_c_also_ends_the_wait_for_a_server(threads):
    predictor = Away()

    def tick():
        if predictor.waiting.is_set() and not predictor.stopped.is_set():
            raise KeyboardInterrupt

    with pytest.raises(RunError, match="is away"):
        run_pipeline(Endless(), predictor, Nowhere(), Stages(), tick)
    assert predictor.stopped.is_set() and threading.active_count() <= threads
