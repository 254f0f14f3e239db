"""Hot reload: opens the model file again, compares it with the current model, then swaps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np

from rcil.core.errors import RcilError, RunError, TrustError
from rcil.core.images import Image, decoded
from rcil.model.class_match import match_classes
from rcil_export.graph.shapes import InputShape
from rcil_serve.http.metrics import Metrics
from rcil_serve.http.models import Model, Models
from rcil_serve.http.protocol.answers import Agreed, RefusalError
from rcil_serve.runtime.backends import Backend, Mask
from rcil_serve.runtime.overlap import pair_counts, plain_overlap

Opener = Callable[[Path], Backend]
SAMPLE = files("rcil_serve.http").joinpath("page", "sample.jpg").read_bytes()
"""A generated scene as JPEG, 360 x 640 pixels."""
log = logging.getLogger(__name__)


def incompatibilities(old: Model, new: Model) -> list[str]:
    """List what clients of `old` rely on and `new` does not provide."""
    before, after = old.backend.interface, new.backend.interface
    rows = {c.name: row for row, c in enumerate(new.classes)}
    lost = [c.name for c in old.classes if c.name not in rows]
    moved = [
        c.name
        for row, c in enumerate(old.classes)
        if c.name in rows and (rows[c.name] != row or new.classes[rows[c.name]].id != c.id)
    ]
    reasons = []
    if new.backend.metadata.rejected is not None:
        reasons.append(f"a check after training rejected it: {new.backend.metadata.rejected}")
    if lost:
        reasons.append(f"it does not know {', '.join(lost)}")
    if moved:
        reasons.append(f"it has a different row or id for {', '.join(moved)}")
    if before.input != after.input:
        reasons.append(f"it accepts {after.input} images instead of {before.input}")
    if not _covers(after.shape, before.shape):
        reasons.append(f"it accepts {after.shape} images instead of {before.shape}")
    gone = [name for name in before.outputs if name not in after.outputs and name != "logits"]
    if gone:
        reasons.append(f"it does not output {', '.join(gone)}")
    return reasons


def _covers(wide: InputShape, narrow: InputShape) -> bool:
    axes = ((wide.batch, narrow.batch), (wide.height, narrow.height), (wide.width, narrow.width))
    return all(outer.low <= inner.low and inner.high <= outer.high for outer, inner in axes)


def checked_mask(model: Model, image: Image) -> Mask:
    """Segment an image; raise if the mask or confidence is invalid."""
    found = model.predictor.segment(image)
    if found.mask.shape != image.shape[:2] or int(found.mask.max()) >= len(model.classes) or int(found.mask.min()) < 0:
        raise RunError(f"{model.backend.name} outputs masks with unknown classes", "Export it again.")
    if found.confidence is not None and not np.isfinite(found.confidence):
        raise RunError(f"{model.backend.name} outputs a non-finite confidence", "Export it in another precision.")
    return found.mask


def agreement(old: Model, old_mask: Mask, new: Model, new_mask: Mask) -> Agreed:
    """Agreement of two masks [H, W] of one image, with classes matched by name.

    A class that only the old model has cannot agree: its pixels count as changed, and its IoU is 0.
    """
    lost = dict.fromkeys((c.name for row, c in enumerate(old.classes) if (old_mask == row).any()), 0.0)
    if not {c.name for c in old.classes} & {c.name for c in new.classes}:
        return Agreed(pixels=0.0, classes=lost)
    matching = match_classes(old.classes, new.classes)
    overlap = plain_overlap(pair_counts(old_mask, new_mask, matching.counts), matching)
    both = {name: iou for name, iou in zip(matching.names, overlap.iou(), strict=True) if iou is not None}
    return Agreed(pixels=int(overlap.both.sum()) / old_mask.size, classes=lost | both)


def sample_image() -> Image:
    """The sample image, RGB [360, 640, 3]; models are tried on it until a request has brought an image."""
    pixels = decoded(SAMPLE)
    assert pixels is not None
    return pixels


def open_model(path: Path, opener: Opener, scale: float | None = None) -> Model:
    """Load a model and run it once to warm it up; `scale` as in `Layout`."""
    backend = opener(path)
    try:
        model = Model(backend, scale)
        checked_mask(model, sample_image())
    except BaseException:
        backend.close()
        raise
    return model


class Reloader:
    """Replaces the current model with the present content of its file. After any failure the current model stays.

    Args:
        path: The model file.
        opener: Loads the file.
        models: The served models.
        metrics: Counts the results.
        scale: As in `Layout`.
    """

    def __init__(
        self, path: Path, opener: Opener, models: Models, metrics: Metrics, scale: float | None = None
    ) -> None:
        self._path, self._opener, self._models, self._metrics = path, opener, models, metrics
        self._scale = scale
        self._turn = threading.Lock()

    def reload(self, *, force: bool = False, wait_s: float = 0.0) -> dict[str, object]:
        """Load, warm up, compare and swap; one reload at a time.

        Args:
            force: Accept a new model that is incompatible with the old one.
            wait_s: Seconds to wait for a reload in progress before refusing with 409.

        Returns:
            The report for the response.
        """
        if not self._turn.acquire(timeout=wait_s):
            raise RefusalError(409, "a reload is in progress", "Retry when it is done.")
        try:
            report = self._reload(force)
        except RefusalError:
            self._metrics.reload("refused")
            raise
        except RcilError as error:
            self._metrics.reload("untrusted" if isinstance(error, TrustError) else "failed")
            raise RefusalError(422, f"the old model keeps serving: {error.message}", error.hint) from error
        except Exception:
            self._metrics.reload("failed")
            raise
        finally:
            self._turn.release()
        self._metrics.reload("done")
        log.info("%s serves step %s instead of %s", self._path, report["step"], report["previous_step"])
        return report

    def _reload(self, force: bool) -> dict[str, object]:
        new = open_model(self._path, self._opener, self._scale)
        try:
            with self._models.use() as old:
                reasons = incompatibilities(old, new)
                if reasons and not force:
                    raise RefusalError(
                        422,
                        f"the old model keeps serving, because the new one is incompatible: {'; '.join(reasons)}",
                        'Send {"parameters": {"force": true}} to accept it anyway.',
                    )
                image = self._models.last_image
                image = sample_image() if image is None else image
                agreed = agreement(old, checked_mask(old, image), new, checked_mask(new, image))
                report: dict[str, object] = {
                    "step": new.step,
                    "sha256": new.backend.sha256,
                    "previous_step": old.step,
                    "previous_sha256": old.backend.sha256,
                    "missing": reasons,
                    "agreement": agreed.model_dump(),
                }
        except BaseException:
            new.backend.close()
            raise
        self._models.replace(new)
        return report
