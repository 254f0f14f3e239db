"""Dry runs of `video` and `diff`: models and source are opened and one frame is timed, but nothing is written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rcil.core.files import check_writable
from rcil.core.log import DryRun
from rcil_serve.diff.transitions import common_classes
from rcil_serve.diff.views import VIEWS, unknown_view
from rcil_serve.runtime.painter import Painter
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.outputs.encoders import chosen
from rcil_serve.stream.outputs.receipt import summarize_model

if TYPE_CHECKING:
    from rcil_serve.diff.run import DiffRequest
    from rcil_serve.video.run import VideoRequest


def video_dry_run(request: VideoRequest) -> DryRun:
    """Report what `run_video` would do."""
    return _dry_run(request, [request.model], request.outputs(), lambda classes: Painter(classes, only=request.classes))


def diff_dry_run(request: DiffRequest) -> DryRun:
    """Report what `run_diff` would do."""
    if request.view not in VIEWS:
        raise unknown_view(request.view)
    outputs = {**request.outputs(), "receipt": request.receipt}
    return _dry_run(request, [request.old, request.new], outputs, common_classes)


def _dry_run(
    request: VideoRequest | DiffRequest, models: Sequence[Path], outputs: dict[str, Path], check: Callable[..., object]
) -> DryRun:
    """Open and time the models; `check` raises if the classes of the models do not fit the request."""
    request.check()
    for path in outputs.values():
        check_writable(path)
    with contextlib.ExitStack() as stack:
        info = stack.enter_context(contextlib.closing(request.open_source(request.source))).info
        if "video" in outputs:
            chosen(request.encoding, info)
        backends = [stack.enter_context(contextlib.closing(request.open_backend(path))) for path in models]
        check(*(backend.metadata.classes for backend in backends))
        seconds = sum(_seconds(Predictor(backend, request.layout), info.size) for backend in backends)
        reads = {backend.name: summarize_model(backend) for backend in backends}
    count = f"{info.frames} frames" if info.frames is not None else "an unknown number of frames"
    needs = {"inference": f"{1000 * seconds:.0f} ms per frame"}
    if info.frames is not None:
        needs["time"] = f"{seconds * info.frames:.0f} s for the whole source, plus decoding and encoding"
    return DryRun(
        {**reads, info.name: f"{count} of {info.summary}"}, {str(path): name for name, path in outputs.items()}, needs
    )


def _seconds(predictor: Predictor, size: tuple[int, int]) -> float:
    """Time the second of two frames, because the first one warms up the model."""
    frame = np.zeros((*size, 3), np.uint8)
    predictor.segment(frame)
    start = time.perf_counter()
    predictor.segment(frame)
    return time.perf_counter() - start
