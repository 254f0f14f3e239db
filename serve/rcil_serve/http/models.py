"""The served models: the current one, and the previous one to compare with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rcil.core.images import Image
from rcil.model.metadata import ClassInfo
from rcil_export.triton.config import PARAMETER, description_text
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.runtime.backends import Backend
from rcil_serve.runtime.predictor import Layout, Predictor

CURRENT, PREVIOUS = "current", "previous"


class Model:
    """A loaded model with its number of users."""

    def __init__(self, backend: Backend, scale: float | None = None) -> None:
        self.backend = backend
        self.predictor = Predictor(backend, Layout(scale=scale))
        self.users = 0
        self.retired = False

    @property
    def step(self) -> int:
        """Continual step of the model."""
        return self.backend.metadata.step

    @property
    def version(self) -> str:
        """Version in the Open Inference Protocol."""
        return str(self.step)

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """Classes in the order of mask rows."""
        return self.backend.metadata.classes

    def describe(self) -> dict[str, object]:
        """Description for `/classes` and the page."""
        shape = self.backend.interface.shape
        return {
            "step": self.step,
            "sha256": self.backend.sha256,
            "device": self.backend.device,
            "precision": self.backend.interface.precision,
            "input": str(shape),
            "classes": [c.model_dump(mode="json") for c in self.classes],
        }

    def config(self, name: str) -> dict[str, object]:
        """Configuration in Triton's form, with the parameter that describes the model to `triton://` clients."""
        backend = self.backend
        metadata, interface = backend.metadata.model_dump(mode="json"), backend.interface.model_dump(mode="json")
        text = description_text(metadata, interface, backend.sha256)
        batch = backend.interface.shape.batch
        return {
            "name": name,
            "max_batch_size": 0 if batch.fixed else batch.high,
            "parameters": {f"{PARAMETER}{self.version}": {"string_value": text}},
        }


class Models:
    """Provides and replaces models. A replaced model is closed after its last user has finished."""

    def __init__(self, current: Model, previous: Model | None = None) -> None:
        self._lock = threading.Lock()
        self.current, self.previous = current, previous
        """For descriptions only; call `use` to run a model."""
        self.last_image: Image | None = None
        """Image of the last request, RGB [H, W, 3], to compare models on."""

    @property
    def versions(self) -> list[str]:
        """Available versions, oldest first."""
        steps = {model.step for model in (self.current, self.previous) if model is not None}
        return [str(step) for step in sorted(steps)]

    @contextlib.contextmanager
    def use(self, which: str = CURRENT) -> Iterator[Model]:
        """Keep a model open during the block.

        Args:
            which: `current`, `previous` or a version. A version that both models have selects the current one.
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
        """Serve `new` from now on. The current model becomes the previous one, unless it is the same file."""
        with self._lock:
            same = new.backend.sha256 == self.current.backend.sha256
            gone = self.current if same else self.previous
            if not same:
                self.previous = self.current
            self.current = new
            if gone is not None:
                gone.retired = True
        if gone is not None:
            self._close_if_unused(gone)

    def close(self) -> None:
        """Close both models once they are unused."""
        for model in (self.current, self.previous):
            if model is not None:
                model.retired = True
                self._close_if_unused(model)

    def _find(self, which: str) -> Model:
        if which in (CURRENT, self.current.version):
            return self.current
        if self.previous is not None and which in (PREVIOUS, self.previous.version):
            return self.previous
        if which == PREVIOUS:
            raise RefusalError(404, "there is no previous model", "Start with --previous, or reload a newer model.")
        raise RefusalError(404, f"unknown version {which}", f"Known: {', '.join(self.versions)}.")

    def _close_if_unused(self, model: Model) -> None:
        with self._lock:
            unused = model.retired and model.users == 0
        if unused:
            model.backend.close()
