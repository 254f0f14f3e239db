"""The Python API of serving: `open_model` returns a `Model` that segments images and streams, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Self

from rcil.core.images import Image
from rcil.core.prediction import Prediction, check_image
from rcil.model.metadata import ClassInfo, LineageEntry, Metadata
from rcil_serve.runtime.backends import Backend, open_backend
from rcil_serve.runtime.planes import Picture
from rcil_serve.runtime.predictor import Layout, Predictor
from rcil_serve.stream.channel import Channel, Failure, StoppedError
from rcil_serve.stream.frames import Frame, Selection, Source, SourceError
from rcil_serve.stream.pipeline import WAITING, Stage
from rcil_serve.stream.sources.open import open_source


@dataclass(frozen=True, eq=False)
class StreamFrame:
    """One frame of a stream with its prediction.

    Example:
        >>> with rcil_serve.open_model("deployed/model.onnx") as model:
        ...     frame = next(model.stream("yard.mp4"))
        >>> frame.time
        0.0
        >>> frame.image.shape[:2] == frame.result.mask.shape
        True
    """

    time: float
    """Seconds from the beginning of the source."""
    image: Image = field(repr=False)
    """RGB [H, W, 3], upright."""
    result: Prediction
    """Prediction of the model for this frame."""


def open_model(
    path: str | Path,
    device: str = "auto",
    *,
    threads: int | None = None,
    size: tuple[int, int] | None = None,
    scale: float | None = None,
    tile: int | None = None,
    trust: Sequence[str | Path] = (),
) -> Model:
    """Open an exported model; use it in a `with` statement, or call `close`.

    Example:
        >>> with rcil_serve.open_model("deployed/model.onnx", device="cpu") as model:
        ...     [c.name for c in model.classes]
        ['background', 'cone', 'ball']

    Args:
        path: An `.onnx` file, or an `.engine` with its sidecar, of `rcil-export`.
        device: `auto`, `cpu` or `cuda`, for ONNX files; engines run on the GPU.
        threads: Threads of ONNX Runtime on the CPU; as many as there are cores by default.
        size: Height and width of the input, if the model takes several; by default that of the image times `scale`.
        scale: Factor by which images are resized, if the model takes several sizes; by default that of its training.
        tile: Side of the square tiles that large images are cut into; by default images are not cut.
        trust: Public keys, one of which must have signed the model; signatures are not checked by default.
    """
    backend = open_backend(Path(path), device, threads, [Path(key) for key in trust])
    try:
        return Model(backend, Layout(size=size, tile=tile, scale=scale))
    except BaseException:
        backend.close()
        raise


class Model:
    """An exported model that is loaded; a context manager. Several threads may call `predict` at once.

    Example:
        >>> with rcil_serve.open_model("deployed/model.onnx") as model:
        ...     result = model.predict(image)
        >>> result.mask.shape == image.shape[:2]
        True

    Args:
        backend: Runs the model; it is closed with this object.
        layout: How images are fitted to the model's input.
    """

    def __init__(self, backend: Backend, layout: Layout | None = None) -> None:
        self._backend = backend
        self._predictor = Predictor(backend, layout)
        self._names = tuple(c.name for c in self.classes)
        self._colours = tuple(c.colour for c in self.classes)

    @property
    def metadata(self) -> Metadata:
        """Metadata that the model file contains."""
        return self._backend.metadata

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """The classes in the order of mask rows, each with `name`, `id`, `colour` and `step`."""
        return self.metadata.classes

    @property
    def step(self) -> int:
        """The number of continual steps after the first training."""
        return self.metadata.step

    @property
    def lineage(self) -> tuple[LineageEntry, ...]:
        """History of the model: one entry per step, import or export."""
        return self.metadata.lineage

    @property
    def device(self) -> str:
        """Device that the model runs on, for messages."""
        return self._backend.device

    def predict(self, image: Image) -> Prediction:
        """Segment one image.

        Args:
            image: RGB uint8 [H, W, 3] of any size; the mask has the same size.
        """
        return self._prediction(image, check_image(image))

    def _prediction(self, image: Image, picture: Picture) -> Prediction:
        found = self._predictor.segment(picture)
        return Prediction(image, found.mask, found.confidence, self._names, self._colours, found.grid_size)

    def stream(
        self,
        source: str | Path,
        *,
        stride: int = 1,
        start: float = 0.0,
        end: float | None = None,
        max_frames: int | None = None,
        rate: float = 10,
    ) -> Iterator[StreamFrame]:
        """Segment the frames of a source one by one; the next frames are decoded meanwhile.

        Frames of files wait for the consumer. Cameras and network streams do not: if the consumer is slow, the oldest
        waiting frames are dropped. The source is closed when the iterator is exhausted or closed.

        Args:
            source: A video file, folder of images, pattern, image list (.txt), camera number or address (rtsp, http).
            stride: Use every Nth frame.
            start: Seconds from the beginning; earlier frames are skipped.
            end: Seconds from the beginning; later frames are skipped.
            max_frames: Stop after this many frames.
            rate: Frames per second of image files.
        """
        selection = Selection(stride, start, end, max_frames)
        opened = open_source(str(source), selection, rate=Fraction(rate).limit_denominator(1000))
        return self._frames(opened)

    def _frames(self, source: Source) -> Iterator[StreamFrame]:
        failure, seen = Failure(), 0
        waiting: Channel[Frame] = Channel(WAITING, failure, (lambda frame: None) if source.info.live else None)

        def decode() -> None:
            for item in source:
                if isinstance(item, Frame):
                    waiting.put(item)

        decoder = Stage("decode", failure, source, decode, waiting.close)
        with ExitStack() as stack:
            stack.callback(source.close)
            stack.callback(decoder.join)
            stack.callback(failure.fail, StoppedError())
            stack.callback(source.stop)
            decoder.start()
            try:
                for frame in waiting:
                    seen += 1
                    yield StreamFrame(frame.time, frame.pixels, self._prediction(frame.pixels, frame.picture))
            except StoppedError:
                assert failure.error is not None
                raise failure.error from None
        if not seen:
            raise SourceError(f"{source.info.name} delivered no frames", "Check start, end and stride.")

    def close(self) -> None:
        """Release all resources. May be called twice."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
