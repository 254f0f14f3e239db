"""The options of a run over a stream, which `video`, `diff` and `watch` share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from rcil_serve.runtime.backends import Backend, open_backend
from rcil_serve.runtime.predictor import Layout
from rcil_serve.stream.sources import Selection, Source, open_source
from rcil_serve.stream.sources.live import LiveOptions


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Which frames are read, how they enter a model, and where the model runs. Requests inherit from this class."""

    layout: Layout = field(default_factory=Layout)
    """How frames enter a model."""
    selection: Selection = field(default_factory=Selection)
    """Which frames of the source are processed."""
    live: LiveOptions = field(default_factory=LiveOptions)
    """When to reconnect to a camera or stream, and when to give up."""
    rate: Fraction = Fraction(10)
    """Frame rate of image files, in fps."""
    device: str = "auto"
    """Device that ONNX models run on; see `open_backend`."""
    threads: int | None = None
    """Number of CPU threads; None uses all cores."""
    decoder: str = "auto"
    """What decodes videos: `auto`, `cpu`, `cuda` or `vaapi`."""
    trust: tuple[Path, ...] = ()
    """Public keys; each model must be signed with one of them. If empty, signatures are not checked."""

    def open_source(self, text: str, *, with_sound: bool = True) -> Source:
        """Open the source that the user named, with these options."""
        return open_source(
            text,
            self.selection,
            rate=self.rate,
            live=self.live,
            with_sound=with_sound,
            isolated=True,
            decoder=self.decoder,
        )

    def open_backend(self, path: Path) -> Backend:
        """Load a model with these options."""
        return open_backend(path, self.device, self.threads, self.trust)

    def as_document(self) -> dict[str, Any]:
        """The options as JSON-ready values, for the receipt."""
        document = asdict(self)
        shared = {option.name: document[option.name] for option in fields(StreamOptions)}
        return shared | {"rate": float(self.rate), "trust": [path.name for path in self.trust]}
