"""What `rcil-serve http` can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rcil.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class HttpOptions:
    """One model behind one address."""

    model: Path
    """The file that is served, and read again at a reload."""
    previous: Path | None = None
    """An older model to compare with; a reload puts the model that it replaces here."""
    name: str = "rcil"
    """Of the model in the Open Inference Protocol."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free one."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that requests must carry; None: none."""
    queue: int = 16
    """Requests that may wait for a worker; more are refused with 429."""
    workers: int = 2
    """Requests that run at once; the second one is decoded while the first is in the model."""
    max_bytes: int = 32 * 2**20
    """Of a request's body, also once it is unpacked."""
    max_pixels: int = 2**24
    """Of an image, or of a batch."""
    timeout_s: float = 30.0
    """For a whole request, from its first byte."""
    device: str = "auto"
    threads: int | None = None
    """For ONNX Runtime on the CPU; None: one for each core."""
    trust: tuple[Path, ...] = ()
    """Public keys, one of which must have signed each model, also at a reload."""

    def __post_init__(self) -> None:
        least = {"port": 0, "queue": 0, "workers": 1, "max_bytes": 1, "max_pixels": 1, "timeout_s": 1e-3}
        for name, bound in least.items():
            value = getattr(self, name)
            if value < bound:
                raise ConfigError(f"{name} is {value}", f"Choose {bound} or more.")
        if self.port > 65535:
            raise ConfigError(f"port is {self.port}", "Choose one up to 65535.")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError(
                "the token is empty, or has characters that a header cannot carry", "Use letters and digits."
            )
        if not self.name or "/" in self.name:
            raise ConfigError(f"'{self.name}' cannot be the name of a model", "Use letters and digits.")

    @property
    def open_to_all(self) -> bool:
        """Whether other machines may reach the server and nothing asks them who they are."""
        return self.token is None and self.host not in LOOPBACK
