"""Kernels that TensorRT-RTX compiled for this GPU, kept beside the engine so that the next start is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcil.errors import RcilError
from rcil.files import replacing
from rcil.log import log


def cache_path(engine: Path) -> Path:
    """`model.engine` -> `model.engine.cache`. It belongs to one machine and is not part of what is delivered."""
    return engine.with_name(f"{engine.name}.cache")


class RuntimeCache:
    """The compiled kernels of one engine; TensorRT-RTX itself rejects those of another GPU, driver or version.

    Args:
        runtime_config: TensorRT-RTX's runtime configuration, which gets the cache.
        path: Where the kernels are kept. A folder that cannot be written to costs nothing but time.
    """

    def __init__(self, runtime_config: Any, path: Path) -> None:
        self._path = path
        self._cache = runtime_config.create_runtime_cache()
        self._stored = _read(path)
        if self._stored and not self._cache.deserialize(self._stored):
            log.info("%s does not fit this GPU and driver: kernels are compiled again", path)
            self._stored = b""
        runtime_config.set_runtime_cache(self._cache)

    def save(self) -> None:
        """Write the kernels if there are new ones."""
        memory = self._cache.serialize()
        content = b"" if memory is None else bytes(memory)
        if not content or content == self._stored:
            return
        try:
            with replacing(self._path) as part:
                part.write_bytes(content)
        except RcilError as error:
            log.info("compiled kernels are not kept: %s", error.message)
        self._stored = content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
