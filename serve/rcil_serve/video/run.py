"""Runs a model on a source and writes the requested outputs and a receipt."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError
from rcil.core.files import working_in
from rcil.core.log import Notify
from rcil_serve.live.pictures import Pictures
from rcil_serve.live.server import ViewOptions, serving
from rcil_serve.live.view import LiveView
from rcil_serve.runtime.painter import Painter
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Sound, Stages
from rcil_serve.stream.options import StreamOptions
from rcil_serve.stream.output_checks import check_free_folders, check_no_overwrite
from rcil_serve.stream.outputs.encoders import Encoding, chosen
from rcil_serve.stream.outputs.masks import is_folder
from rcil_serve.stream.outputs.movie import check_suffix
from rcil_serve.stream.outputs.receipt import Receipt, Show, summarize_model
from rcil_serve.stream.outputs.segments import Archive, Recording, SegmentedSink
from rcil_serve.stream.outputs.sink import FileSink, Overlays, Smoother, Targets
from rcil_serve.stream.pipeline import SegmentedFrame, run_pipeline
from rcil_serve.stream.sources import Source
from rcil_serve.stream.sources.open import local_files


@dataclass(frozen=True)
class VideoRequest(StreamOptions):
    """What `rcil-serve video` is asked to do."""

    source: str
    model: Path
    targets: Targets
    receipt: Path
    alpha: float = 0.5
    classes: tuple[str, ...] = ()
    legend: bool = False
    smooth: int = 1
    encoding: Encoding = field(default_factory=Encoding)
    recording: Recording | None = None
    """Cut the outputs into segments; None writes one file each."""
    view: ViewOptions | None = None
    """Where the live view is served."""

    def outputs(self) -> dict[str, Path]:
        """Files to write, by name, including the receipt."""
        return {**self.targets.as_dict(), "receipt": self.receipt}

    def check(self) -> None:
        """Raise if the request cannot be met by any source or model. Nothing is opened."""
        if not self.targets.as_dict() and (self.view is None or self.recording is not None):
            raise ConfigError(
                "no output was requested", "Name a video with -o, or use --masks, --jsonl, --timeline or --view."
            )
        if self.targets.video is not None:
            check_suffix(self.targets.video, lossless=False)
        folder = self.targets.masks if self.targets.masks is not None and is_folder(self.targets.masks) else None
        Smoother(self.smooth)
        check_no_overwrite(self.source, [self.model], self.outputs())
        if self.recording is not None:
            if folder is not None:
                raise ConfigError("a folder of masks cannot be cut into segments", "Write the masks to a .mkv file.")
            Archive(self.targets, self.recording.keep).check(local_files(self.source))
        if folder is not None:
            check_free_folders(local_files(self.source), [folder])

    def as_document(self) -> dict[str, Any]:
        """The options as JSON-ready values, for the receipt."""
        own = ("alpha", "classes", "legend", "smooth")
        recording = None if self.recording is None else asdict(self.recording)
        return (
            super().as_document()
            | {name: getattr(self, name) for name in own}
            | asdict(self.encoding)
            | {"recording": recording}
        )


def run_video(
    request: VideoRequest, notify: Notify = lambda text: None, show: Show = lambda progress: None
) -> dict[str, Any]:
    """Segment a source and write the requested outputs.

    Once model and source are open, the receipt records how the run ended, even after an error.

    Args:
        request: The request.
        notify: Called with one line for each choice that is made.
        show: Called with the progress, ten times per second.

    Returns:
        The receipt.
    """
    request.check()
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(contextlib.closing(request.open_backend(request.model)))
        notify(f"{backend.name}: {summarize_model(backend)}")
        predictor = Predictor(backend, request.layout)
        for line in predictor.notices:
            notify(line)
        source = stack.enter_context(contextlib.closing(request.open_source(request.source)))
        notify(f"{source.info.name}: {source.info.summary}")
        for path in request.outputs().values():
            stack.enter_context(working_in(path))
        view = None
        if request.view is not None:
            view = LiveView(source, backend, Pictures((), request.alpha, request.classes))
            stack.enter_context(serving(view, request.view, notify))
        if request.targets.video is not None:
            request = replace(request, encoding=chosen(request.encoding, source.info, notify))
        return _run(request, source, predictor, view, show)


def _run(
    request: VideoRequest, source: Source, predictor: Predictor, view: LiveView | None, show: Show
) -> dict[str, Any]:
    stages, outputs = Stages(), request.targets.as_dict()
    painter = Painter(predictor.classes, request.alpha, request.classes, with_legend=request.legend)
    overlays = Overlays(None if request.targets.video is None else painter, request.smooth)

    def open_sink(targets: Targets, offset: float) -> FileSink:
        info, counts, encoding = source.info, source.counts, request.encoding
        return FileSink(targets, info, counts, predictor, stages, offset=offset, encoding=encoding)

    start = request.selection.start
    sink: FileSink | SegmentedSink
    if request.recording is None:
        sink = open_sink(request.targets, start)
    else:
        archive = Archive(request.targets, request.recording.keep)
        sink = SegmentedSink(archive, request.recording.seconds, source.info, open_sink, start)
    receipt = Receipt(
        request.receipt,
        predictor.backend,
        source,
        request.source,
        request.as_document(),
        stages,
        outputs,
        show=show,
        extra=sink.as_document if isinstance(sink, SegmentedSink) else dict,
    )
    try:
        receipt.write("running")
        seen = sink if view is None else _ViewedSink(sink, view, predictor)
        finished = run_pipeline(source, predictor, seen, stages, receipt.tick, overlays.paint)
        receipt.check_frames()
        sink.finish()
    except BaseException as error:
        sink.abandon()
        raise receipt.failed(error) from error
    return receipt.write("done" if finished else "interrupted")


class _ViewedSink:
    """Writes frames and also shows them in a live view."""

    def __init__(self, sink: FileSink | SegmentedSink, view: LiveView, predictor: Predictor) -> None:
        self._sink, self._view, self._classes = sink, view, predictor.classes

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`."""
        self._sink.write(seen)
        self._view.publish(seen, self._classes)

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""
        self._sink.write_sound(sound)


def default_receipt(output: Path | None) -> Path:
    """Path of the receipt next to an output: `street.receipt.json` for `street.mp4`."""
    if output is None or not output.name:
        return Path("rcil-serve.receipt.json")
    return output.with_suffix(".receipt.json")
