"""One command: source, model, outputs, receipt."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from rcil.errors import ConfigError, RcilError
from rcil_serve.backends import open_backend
from rcil_serve.painter import Painter
from rcil_serve.predictor import Layout, Predictor
from rcil_serve.video.frames import Counts, SourceError, SourceInfo
from rcil_serve.video.latencies import Stages
from rcil_serve.video.outputs.movie import DiskFullError
from rcil_serve.video.outputs.receipt import Receipt
from rcil_serve.video.outputs.sink import FileSink, Targets
from rcil_serve.video.pipeline import run_pipeline
from rcil_serve.video.sources import Selection, Source, open_source
from rcil_serve.video.sources.live import LiveOptions

RECEIPT_SECONDS = 2.0


@dataclass(frozen=True)
class VideoRequest:
    """What the user wants."""

    source: str
    model: Path
    targets: Targets
    receipt: Path
    layout: Layout = field(default_factory=Layout)
    selection: Selection = field(default_factory=Selection)
    live: LiveOptions = field(default_factory=LiveOptions)
    rate: Fraction = Fraction(10)
    alpha: float = 0.5
    classes: tuple[str, ...] = ()
    legend: bool = False
    smooth: int = 1
    crf: int = 21
    device: str = "auto"
    threads: int | None = None

    def as_document(self) -> dict[str, Any]:
        """The options, JSON-ready."""
        document = asdict(self)
        for key in ("source", "model", "targets", "receipt"):
            del document[key]
        return document | {"rate": float(self.rate)}


@dataclass(frozen=True)
class Progress:
    """How a run stands."""

    info: SourceInfo
    counts: Counts
    seconds: float


@dataclass(frozen=True)
class VideoResult:
    """What a run gave."""

    document: dict[str, Any]
    """The receipt."""
    outputs: dict[str, Path]


def run_video(
    request: VideoRequest,
    say: Callable[[str], None] = lambda text: None,
    show: Callable[[Progress], None] = lambda progress: None,
) -> VideoResult:
    """Segment a source and write what was asked for; the receipt says how it went, whatever happens.

    Args:
        request: What to do.
        say: Told what is chosen, a line at a time.
        show: Told how things stand, ten times a second.
    """
    if not request.targets.as_dict():
        raise ConfigError("nothing is to be written", "Name a video with -o, or --masks, --jsonl or --timeline.")
    with contextlib.ExitStack() as stack:
        backend = open_backend(request.model, request.device, request.threads)
        stack.callback(backend.close)
        say(f"{request.model}: step {backend.metadata.step}, {len(backend.metadata.classes)} classes, {backend.device}")
        predictor = Predictor(backend, request.layout)
        source = open_source(request.source, request.selection, rate=request.rate, live=request.live)
        stack.callback(source.close)
        height, width = source.info.size
        say(f"{source.info.name}: {width}x{height}, {float(source.info.rate):.3f} frames a second")
        file = Path(request.source)
        receipt = Receipt(
            request.receipt, backend, source.info, file if file.is_file() else None, request.as_document()
        )
        return _Run(request, source, predictor, receipt, show).run()


class _Run:
    """One run, from the opened source to the last receipt."""

    def __init__(
        self,
        request: VideoRequest,
        source: Source,
        predictor: Predictor,
        receipt: Receipt,
        show: Callable[[Progress], None],
    ) -> None:
        self._request, self._source, self._predictor = request, source, predictor
        self._receipt, self._show = receipt, show
        self._stages = Stages()
        self._begun = self._written = time.monotonic()
        painter = Painter(predictor.classes, request.alpha, request.classes, with_legend=request.legend)
        self._sink = FileSink(
            request.targets,
            source.info,
            source.counts,
            predictor,
            painter,
            request.smooth,
            self._stages,
            offset=request.selection.start,
            crf=request.crf,
        )

    def run(self) -> VideoResult:
        """See `run_video`."""
        self._write("running")
        try:
            finished = run_pipeline(self._source, self._predictor, self._sink, self._stages, self._tick)
            if not self._source.counts.written:
                raise SourceError(f"{self._source.info.name} gave no frames", "Check --start, --end and --stride.")
            self._sink.finish()
        except BaseException as error:
            self._sink.abandon()
            raise self._failed(error) from error
        document = self._write("done" if finished else "interrupted")
        return VideoResult(document, self._request.targets.as_dict())

    def _failed(self, error: BaseException) -> BaseException:
        """The error as the user should see it; the receipt says it too."""
        if isinstance(error, DiskFullError):
            error = error.with_estimate(self._source.info.frames)
        text = error.message if isinstance(error, RcilError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(RcilError):  # the disk may be full
            self._write("failed", text)
        return error

    def _tick(self) -> None:
        self._show(Progress(self._source.info, replace(self._source.counts), time.monotonic() - self._begun))
        if time.monotonic() - self._written > RECEIPT_SECONDS:
            self._written = time.monotonic()
            with contextlib.suppress(RcilError):
                self._write("running")

    def _write(self, status: Any, error: str | None = None) -> dict[str, Any]:
        outputs = self._request.targets.as_dict()
        return self._receipt.write(status, self._source.counts, self._stages, outputs, error)


def default_receipt(request_output: Path | None) -> Path:
    """`street.mp4` -> `street.receipt.json`."""
    return Path("rcil-serve.receipt.json") if request_output is None else request_output.with_suffix(".receipt.json")
