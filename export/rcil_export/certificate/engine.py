"""TensorRT-RTX engines of two graphs, byte for byte."""

from __future__ import annotations

import filecmp
import tempfile
import time
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError, MissingDependencyError
from rcil_export.checks.result import Item
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.errors import EngineError
from rcil_export.graph.interface import Precision

ENGINE_GPUS = ("sm86",)


def engine_item(
    own: Path, plain: Path, precision: Precision, gpus: tuple[str, ...], *, build_both: bool = False
) -> Item:
    """Whether TensorRT-RTX builds the same bytes from both.

    Two files with the same bytes are one input of a builder that gives the same bytes for the same input, so a single
    build speaks for both.

    Args:
        own: A file with the delivered graph in canonical form: engines contain the names of nodes.
        plain: One with the twin's, with the same weights.
        precision: Of both.
        gpus: Compute capabilities to build for.
        build_both: Also build twice from equal files, to test the builder.
    """
    key, title, required = f"engine_{precision}", f"Same TensorRT-RTX engine in {precision}", "the same bytes"
    options = EngineOptions(precision=precision, flavour="rtx", gpus=gpus)
    with tempfile.TemporaryDirectory(prefix="rcil-certificate-") as folder:
        try:
            first = _built(own, Path(folder) / "built.engine", options)
            one_input = not build_both and filecmp.cmp(own, plain, shallow=False)
            second = first if one_input else _built(plain, Path(folder) / "built.engine", options)
        except (MissingDependencyError, ConfigError) as error:  # not here, or not for these GPUs
            return Item(key, title, None, f"not built: {error.message}", required, {"remedy": error.hint})
        except EngineError as error:
            return Item(key, title, False, f"not built: {error.message}", required, {"remedy": error.hint})
    same = first["sha256"] == second["sha256"]
    how = ""
    if not same:
        how = f"; the plain network's: {second['bytes']:,} bytes, {second['sha256'][:12]}"
    elif one_input:
        how = f"; both canonical graphs are the same bytes, sha256 {first['onnx_sha256'][:12]}, and were built once"
    return Item(
        key,
        title,
        same,
        f"{first['bytes']:,} bytes for {', '.join(gpus)}, sha256 {first['sha256'][:12]}{how}",
        required,
        {"gpus": list(gpus), "delivered": first, "plain": second, "same_input": one_input},
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
