"""Hot reload: open the file again, try it beside the model that serves, then swap."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import numpy as np

from rcil.core.errors import RcilError, TrustError
from rcil.core.images import Image, decoded
from rcil_serve.http.compare import agreement, checked_mask, incompatibilities
from rcil_serve.http.metrics import Metrics
from rcil_serve.http.models import Model, Models
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.runtime.backends import Backend

Opener = Callable[[Path], Backend]
SAMPLE = files("rcil_serve.http").joinpath("page", "sample.jpg").read_bytes()
"""A generated scene as JPEG, 360 x 640 pixels."""
log = logging.getLogger(__name__)


def sample_image() -> Image:
    """The sample image, RGB [360, 640, 3]; models are tried on it until a request has brought an image."""
    pixels = decoded(SAMPLE)
    assert pixels is not None
    return np.ascontiguousarray(pixels[..., ::-1])


def open_model(path: Path, opener: Opener) -> Model:
    """Load a model and run it once, so that the first request finds it warm."""
    backend = opener(path)
    try:
        model = Model(backend)
        checked_mask(model, sample_image())
    except BaseException:
        backend.close()
        raise
    return model


class Reloader:
    """Replaces the current model by what its file holds now; on any failure the current one stays.

    Args:
        path: The file.
        opener: Loads it.
        models: Those that serve.
        metrics: Count the results.
    """

    def __init__(self, path: Path, opener: Opener, models: Models, metrics: Metrics) -> None:
        self._path = path
        self._opener = opener
        self._models = models
        self._metrics = metrics
        self._turn = threading.Lock()

    def reload(self, *, force: bool = False, wait_s: float = 0.0) -> dict[str, object]:
        """Load, warm, compare, swap; one at a time.

        Args:
            force: Take the new model even if clients of the old one miss something in it.
            wait_s: How long to wait for the end of a reload that is under way; 409 after that.

        Returns:
            What happened, for the answer.
        """
        if not self._turn.acquire(timeout=wait_s):
            raise RefusalError(409, "a reload is under way", "Ask again when it is done.")
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
        new = open_model(self._path, self._opener)
        try:
            with self._models.use() as old:
                reasons = incompatibilities(old, new)
                if reasons and not force:
                    raise RefusalError(
                        422,
                        f"the old model keeps serving, as clients would miss something in the new one: "
                        f"{'; '.join(reasons)}",
                        'Send {"parameters": {"force": true}} to take it all the same.',
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
                    "agreement": asdict(agreed),
                }
        except BaseException:
            new.backend.close()
            raise
        self._models.replace(new)
        return report
