"""Runs a model on a source and writes the requested outputs and a receipt."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError
from rcil.core.files import working_in
from rcil.core.log import Notify
from rcil_serve.runtime.painter import Painter
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Stages
from rcil_serve.stream.options import StreamOptions
from rcil_serve.stream.output_checks import check_free_folders, check_no_overwrite
from rcil_serve.stream.outputs.masks import is_folder
from rcil_serve.stream.outputs.movie import check_suffix
from rcil_serve.stream.outputs.receipt import Receipt, Show, summarize_model
from rcil_serve.stream.outputs.sink import FileSink, Smoother, Targets
from rcil_serve.stream.pipeline import run_pipeline
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
    crf: int = 21

    def outputs(self) -> dict[str, Path]:
        """Files to write, by name, including the receipt."""
        return {**self.targets.as_dict(), "receipt": self.receipt}

    def check(self) -> None:
        """Raise if the request cannot be met by any source or model. Nothing is opened."""
        if not self.targets.as_dict():
            raise ConfigError("no output was requested", "Name a video with -o, or use --masks, --jsonl or --timeline.")
        if self.targets.video is not None:
            check_suffix(self.targets.video, lossless=False)
        folder = self.targets.masks if self.targets.masks is not None and is_folder(self.targets.masks) else None
        Smoother(self.smooth)
        check_no_overwrite(self.source, [self.model], self.outputs())
        if folder is not None:
            check_free_folders(local_files(self.source), [folder])

    def as_document(self) -> dict[str, Any]:
        """The options as JSON-ready values, for the receipt."""
        own = ("alpha", "classes", "legend", "smooth", "crf")
        return super().as_document() | {name: getattr(self, name) for name in own}


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
        notify(f"{request.model}: {summarize_model(backend)}")
        predictor = Predictor(backend, request.layout)
        for line in predictor.notices:
            notify(line)
        source = stack.enter_context(contextlib.closing(request.open_source(request.source)))
        notify(f"{source.info.name}: {source.info.summary}")
        for path in request.outputs().values():
            stack.enter_context(working_in(path))
        return _run(request, source, predictor, show)


def _run(request: VideoRequest, source: Source, predictor: Predictor, show: Show) -> dict[str, Any]:
    stages, outputs = Stages(), request.targets.as_dict()
    receipt = Receipt(
        request.receipt, predictor.backend, source, request.source, request.as_document(), stages, outputs, show=show
    )
    painter = Painter(predictor.classes, request.alpha, request.classes, with_legend=request.legend)
    sink = FileSink(
        request.targets,
        source.info,
        source.counts,
        predictor,
        painter,
        request.smooth,
        stages,
        offset=request.selection.start,
        crf=request.crf,
    )
    try:
        receipt.write("running")
        finished = run_pipeline(source, predictor, sink, stages, receipt.tick)
        receipt.check_frames()
        sink.finish()
    except BaseException as error:
        sink.abandon()
        raise receipt.failed(error) from error
    return receipt.write("done" if finished else "interrupted")


def default_receipt(output: Path | None) -> Path:
    """Path of the receipt next to an output: `street.receipt.json` for `street.mp4`."""
    if output is None or not output.name:
        return Path("rcil-serve.receipt.json")
    return output.with_suffix(".receipt.json")
