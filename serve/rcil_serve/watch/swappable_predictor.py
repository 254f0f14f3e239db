"""A predictor that can be replaced while the pipeline runs."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

from rcil_serve.runtime.planes import Picture
from rcil_serve.runtime.predictor import Predictor, Segmentation


class SwappablePredictor:
    """Forwards images to a replaceable predictor, and remembers which predictor made each mask.

    Frames are queued between the stages of the pipeline. After a swap, queued masks still have the rows of the former
    model, so readers of a mask ask `maker` for its predictor.

    Args:
        first: The initial predictor.
    """

    def __init__(self, first: Predictor) -> None:
        self.layout = first.layout
        self._now = first
        self._makers: SimpleQueue[Predictor] = SimpleQueue()

    def segment_all(self, images: Sequence[Picture]) -> list[Segmentation]:
        """See `FramePredictor.segment_all`."""
        now = self._now
        found = now.segment_all(images)
        for _ in found:
            self._makers.put(now)
        return found

    def maker(self) -> Predictor:
        """Predictor of the next segmentation; call it once per segmentation, in order."""
        return self._makers.get_nowait()

    def replace(self, new: Predictor) -> None:
        """Send further images to `new`."""
        self._now = new

    def stop(self) -> None:
        """See `Predictor.stop`."""
        self._now.stop()
