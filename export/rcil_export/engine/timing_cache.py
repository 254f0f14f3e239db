"""What classic TensorRT measured while it chose kernels, kept so that the next build on this GPU takes less time."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rcil.errors import RcilError
from rcil.files import replacing
from rcil.log import log
from rcil_export.engine.flavour import Flavour
from rcil_export.engine.gpu import Gpu


def timing_cache_path(flavour: Flavour, gpu: Gpu) -> Path:
    """One file per version of TensorRT and kind of GPU, in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) if base else Path.home() / ".cache"
    kind = re.sub(r"[^A-Za-z0-9]+", "-", gpu.name).strip("-").lower()
    return folder / "rcil" / f"tensorrt-{flavour.version}-{kind}-{gpu.capability}.timing"


@contextlib.contextmanager
def timings_kept(config: Any, path: Path | None) -> Iterator[None]:
    """Build with the measurements of earlier builds; keep the new ones if the block ends without an error.

    Measurements of another GPU or driver are rejected by TensorRT, and a file that cannot be written costs nothing but
    time.

    Args:
        config: TensorRT's builder configuration.
        path: Where the measurements are kept; None: nowhere.
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
    if content == stored:
        return
    try:
        with replacing(path) as part:
            part.write_bytes(content)
    except RcilError as error:
        log.info("measurements are not kept: %s", error.message)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
