"""The current model inside the pipeline, replaceable while frames flow."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

from rcil.core.images import Image
from rcil_serve.runtime.predictor import Predictor, Segmentation


class Relay:
    """Passes images to a predictor that may be replaced, and remembers which one saw each image.

    Frames wait between the stages of the pipeline. After a swap those on their way still have the rows of the former
    model, so whoever reads a mask asks `maker` whose rows they are.

    Args:
        first: The predictor to begin with.
    """

    def __init__(self, first: Predictor) -> None:
        self.layout = first.layout
        self._now = first
        self._makers: SimpleQueue[Predictor] = SimpleQueue()

    def segment_all(self, images: Sequence[Image]) -> list[Segmentation]:
        """See `Segments.segment_all`."""
        now = self._now
        found = now.segment_all(images)
        for _ in found:
            self._makers.put(now)
        return found

    def maker(self) -> Predictor:
        """Who made the next segmentation; to be asked once for each, in their order."""
        return self._makers.get_nowait()

    def replace(self, new: Predictor) -> None:
        """Images from now on go to `new`."""
        self._now = new
