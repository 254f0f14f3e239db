"""The models that serve: the current one, and the one before it to compare with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rcil.core.images import Image
from rcil.model.metadata import ClassInfo
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.runtime.backends import Backend
from rcil_serve.runtime.predictor import Predictor

CURRENT, PREVIOUS = "current", "previous"


class Model:
    """A loaded model; `Models` counts who uses it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.predictor = Predictor(backend)
        self.users = 0
        self.retired = False

    @property
    def step(self) -> int:
        """The continual step that made it."""
        return self.backend.metadata.step

    @property
    def version(self) -> str:
        """In the Open Inference Protocol."""
        return str(self.step)

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """In the order of mask rows."""
        return self.backend.metadata.classes

    def describe(self) -> dict[str, object]:
        """For `/classes` and the page."""
        shape = self.backend.interface.shape
        return {
            "step": self.step,
            "sha256": self.backend.sha256,
            "device": self.backend.device,
            "precision": self.backend.interface.precision,
            "input": str(shape),
            "classes": [c.model_dump(mode="json") for c in self.classes],
        }


class Models:
    """Hands out models and replaces them; a model that was replaced is closed when its last user has left."""

    def __init__(self, current: Model, previous: Model | None = None) -> None:
        self._lock = threading.Lock()
        self._current = current
        self._previous = previous
        self.last_image: Image | None = None
        """RGB [H, W, 3] of the last request, to compare models on."""

    @property
    def current(self) -> Model:
        """For a look at its description; use `use` to run it."""
        return self._current

    @property
    def previous(self) -> Model | None:
        """For a look at its description; use `use` to run it."""
        return self._previous

    @property
    def versions(self) -> list[str]:
        """That can be asked for, the oldest first."""
        steps = {model.step for model in (self._current, self._previous) if model is not None}
        return [str(step) for step in sorted(steps)]

    @contextlib.contextmanager
    def use(self, which: str = CURRENT) -> Iterator[Model]:
        """A model that stays open until the block ends.

        Args:
            which: `current`, `previous` or a version. Where both models have one version, it is the current one's.
        """
        with self._lock:
            model = self._find(which)
            model.users += 1
        try:
            yield model
        finally:
            with self._lock:
                model.users -= 1
            self._close_if_unused(model)

    def replace(self, new: Model) -> None:
        """Requests from now on get `new`; the current model becomes the previous one, unless it is the same file."""
        with self._lock:
            same = new.backend.sha256 == self._current.backend.sha256
            gone = self._current if same else self._previous
            if not same:
                self._previous = self._current
            self._current = new
            if gone is not None:
                gone.retired = True
        if gone is not None:
            self._close_if_unused(gone)

    def close(self) -> None:
        """Close both once they are not used any more."""
        for model in (self._current, self._previous):
            if model is not None:
                model.retired = True
                self._close_if_unused(model)

    def _find(self, which: str) -> Model:
        if which in (CURRENT, self._current.version):
            return self._current
        if self._previous is not None and which in (PREVIOUS, self._previous.version):
            return self._previous
        if which == PREVIOUS:
            raise RefusalError(404, "there is no previous model", "Start with --previous, or reload a newer model.")
        raise RefusalError(404, f"there is no version {which}", f"Known: {', '.join(self.versions)}.")

    def _close_if_unused(self, model: Model) -> None:
        with self._lock:
            unused = model.retired and model.users == 0
        if unused:
            model.backend.close()
