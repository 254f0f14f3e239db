"""The options of `rcil-serve http`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rcil.core.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class HttpOptions:
    """One model served at one address."""

    model: Path
    """Model file to serve; it is read again on reload."""
    previous: Path | None = None
    """Older model to compare with; after a reload it is the replaced model."""
    name: str = "rcil"
    """Name of the model in the Open Inference Protocol."""
    host: str = "127.0.0.1"
    port: int = 8000
    """Port to listen on; 0 selects any free one."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that requests must send; None requires no token."""
    queue: int = 16
    """Requests that may wait for a worker; further ones are refused with 429."""
    workers: int | None = None
    """Requests that run concurrently, so that one is decoded while others are in the model; None: one more than are in
    a batch."""
    max_batch: int | None = None
    """Images of different requests that the model runs together; None: see `batching.batched`."""
    max_bytes: int = 32 * 2**20
    """Maximum size of a request body, before and after decompression."""
    max_pixels: int = 2**24
    """Maximum number of pixels of an image or batch."""
    timeout: float = 30.0
    """Time limit of a request in seconds, from its first byte."""
    scale: float | None = None
    """Factor by which images are resized for models that accept several sizes; None: that of the model's training."""
    device: str = "auto"
    threads: int | None = None
    """Number of CPU threads of ONNX Runtime; None uses all cores."""
    trust: tuple[Path, ...] = ()
    """Public keys; each model must be signed with one of them, also on reload."""

    def __post_init__(self) -> None:
        minimum = {
            "port": 0,
            "queue": 0,
            "workers": 1,
            "max_batch": 1,
            "max_bytes": 1,
            "max_pixels": 1,
            "timeout": 1e-3,
        }
        for name, bound in minimum.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ConfigError(f"{name} is {value}", f"Choose {bound} or more.")
        if self.port > 65535:
            raise ConfigError(f"port is {self.port}", "Choose one up to 65535.")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError(
                "the token is empty or has characters that are not allowed in a header", "Use letters and digits."
            )
        if not self.name or "/" in self.name:
            raise ConfigError(f"'{self.name}' cannot be the name of a model", "Use letters and digits.")

    @property
    def open_to_all(self) -> bool:
        """Whether other machines can reach the server without a token."""
        return self.token is None and self.host not in LOOPBACK
