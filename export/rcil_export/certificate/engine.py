"""TensorRT-RTX engines of two graphs, byte for byte."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from rcil.errors import ConfigError, MissingDependencyError
from rcil_export.check.result import Item
from rcil_export.engine.build import build_engine
from rcil_export.engine.errors import EngineError
from rcil_export.engine.options import EngineOptions
from rcil_export.interface import Precision

ENGINE_GPUS = ("sm86",)


def engine_item(own: Path, plain: Path, precision: Precision, gpus: tuple[str, ...]) -> Item:
    """Whether TensorRT-RTX builds the same bytes from both.

    Args:
        own: A file with the delivered graph in canonical form: engines contain the names of nodes.
        plain: One with the twin's, with the same weights.
        precision: Of both.
        gpus: Compute capabilities to build for.
    """
    key, title, required = f"engine_{precision}", f"Same TensorRT-RTX engine in {precision}", "the same bytes"
    options = EngineOptions(precision=precision, flavour="rtx", gpus=gpus)
    with tempfile.TemporaryDirectory(prefix="rcil-certificate-") as folder:
        try:
            first, second = (_built(source, Path(folder) / "built.engine", options) for source in (own, plain))
        except (MissingDependencyError, ConfigError) as error:  # not here, or not for these GPUs
            return Item(key, title, None, f"not built: {error.message}", required, {"remedy": error.hint})
        except EngineError as error:
            return Item(key, title, False, f"not built: {error.message}", required, {"remedy": error.hint})
    same = first["sha256"] == second["sha256"]
    return Item(
        key,
        title,
        same,
        f"{first['bytes']:,} bytes for {', '.join(gpus)}, sha256 {first['sha256'][:12]}"
        + ("" if same else f"; the plain network's: {second['bytes']:,} bytes, {second['sha256'][:12]}"),
        required,
        {"gpus": list(gpus), "delivered": first, "plain": second},
        kind="proved",
    )


def _built(source: Path, target: Path, options: EngineOptions) -> dict[str, Any]:
    start = time.perf_counter()
    sidecar = build_engine(source, target, options)
    return {
        "sha256": sidecar.engine_sha256,
        "bytes": target.stat().st_size,
        "onnx_sha256": sidecar.onnx_sha256,
        "version": sidecar.version,
        "seconds": round(time.perf_counter() - start, 2),
    }
