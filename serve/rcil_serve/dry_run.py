"""What a video or a comparison would take: models and source are opened, one frame is timed, nothing is written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rcil.dry_run import DryRun, require_place
from rcil_serve.backends import open_backend
from rcil_serve.diff.views import VIEWS, unknown_view
from rcil_serve.painter import Painter
from rcil_serve.predictor import Predictor
from rcil_serve.video.sources import open_source

if TYPE_CHECKING:
    from rcil_serve.diff.run import DiffRequest
    from rcil_serve.video.run import VideoRequest


def video_dry_run(request: VideoRequest) -> DryRun:
    """What `run_video` would do."""
    request.require_targets()
    with contextlib.closing(open_backend(request.model, request.device, request.threads)) as backend:
        Painter(backend.metadata.classes, request.alpha, request.classes, with_legend=request.legend)
    return _dry_run(request, [request.model], {**request.targets.as_dict(), "receipt": request.receipt})


def diff_dry_run(request: DiffRequest) -> DryRun:
    """What `run_diff` would do."""
    if request.view not in VIEWS:
        raise unknown_view(request.view)
    return _dry_run(request, [request.old, request.new], {**request.outputs(), "receipt": request.receipt})


def _dry_run(request: VideoRequest | DiffRequest, models: Sequence[Path], outputs: dict[str, Path]) -> DryRun:
    for path in outputs.values():
        require_place(path)
    with contextlib.ExitStack() as stack:
        source = open_source(request.source, request.selection, rate=request.rate, live=request.live)
        stack.callback(source.close)
        info, seconds, reads = source.info, 0.0, {}
        for path in models:
            backend = open_backend(path, request.device, request.threads)
            stack.callback(backend.close)
            predictor = Predictor(backend, request.layout)
            seconds += _seconds(predictor, info.size)
            reads[str(path)] = f"step {backend.metadata.step}, {len(predictor.classes)} classes, {backend.device}"
    height, width = info.size
    count = f"{info.frames} frames" if info.frames is not None else "frames until it ends"
    needs = {"inference": f"{1000 * seconds:.0f} ms a frame"}
    if info.frames is not None:
        needs["time"] = f"{seconds * info.frames:.0f} s for the whole source, and what decoding and encoding take"
    return DryRun(
        {**reads, info.name: f"{count} of {width}x{height}, {float(info.rate):.3f} a second"},
        {str(path): name for name, path in outputs.items()},
        needs,
    )


def _seconds(predictor: Predictor, size: tuple[int, int]) -> float:
    """Of one frame; the second, since the first one warms up."""
    frame = np.zeros((*size, 3), np.uint8)
    predictor.segment(frame)
    start = time.perf_counter()
    predictor.segment(frame)
    return time.perf_counter() - start
