"""What TensorRT finds out about a GPU, kept in files so that the next build or start takes less time.

A file that cannot be read or written costs nothing but time, and TensorRT itself rejects one of another GPU, driver or
version.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError
from rcil.core.files import write_file
from rcil.core.log import log
from rcil_export.engine.flavour import Flavour
from rcil_export.engine.gpu import Gpu


def timing_cache_path(flavour: Flavour, gpu: Gpu) -> Path:
    """One file per version of TensorRT and kind of GPU, in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) if base else Path.home() / ".cache"
    kind = re.sub(r"[^A-Za-z0-9]+", "-", gpu.name).strip("-").lower()
    return folder / "rcil" / f"tensorrt-{flavour.version}-{kind}-{gpu.capability}.timing"


def runtime_cache_path(engine: Path) -> Path:
    """`model.engine` -> `model.engine.cache`. It belongs to one machine and is not part of what is delivered."""
    return engine.with_name(f"{engine.name}.cache")


@contextlib.contextmanager
def timings_kept(config: Any, path: Path | None) -> Iterator[None]:
    """Build with the kernel timings of earlier builds; keep the new ones if the block ends without an error.

    Args:
        config: The builder configuration of classic TensorRT.
        path: The file of the timings; None: nothing is kept.
    """
    if path is None:
        yield
        return
    stored = _read(path)
    timing_cache = config.create_timing_cache(stored)
    if timing_cache is None or not config.set_timing_cache(timing_cache, ignore_mismatch=False):
        log.info("%s does not fit this GPU: kernels are measured again", path)
        timing_cache = config.create_timing_cache(b"")
        config.set_timing_cache(timing_cache, ignore_mismatch=False)
    yield
    content = bytes(timing_cache.serialize())
    if content != stored:
        _write(path, content)


class RuntimeCache:
    """The kernels that TensorRT-RTX compiled for one engine on this GPU.

    Args:
        runtime_config: TensorRT-RTX's runtime configuration, which gets the cache.
        path: The file of the kernels.
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
        if content and content != self._stored:
            _write(self._path, content)
            self._stored = content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    try:
        write_file(path, content)
    except RcilError as error:
        log.info("%s is not kept: %s", path, error.message)
