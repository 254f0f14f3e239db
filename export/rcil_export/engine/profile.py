"""The range of sizes that an engine is built for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError
from rcil_export.engine.layout import axis_ranges, sizes_text
from rcil_export.graph.shapes import InputShape


def add_profile(builder: Any, config: Any, network: Any, onnx: Path, asked: InputShape | None) -> InputShape | None:
    """Tell TensorRT the range of `image`, where the graph leaves sizes open; `asked` must fit those that it fixes.

    Returns:
        The profile of the engine, None where nothing is open.
    """
    image = network.get_input(0)
    shape = tuple(image.shape)
    is_open = -1 in shape
    if asked is None:
        if is_open:
            raise ConfigError(
                f"{onnx} leaves sizes of '{image.name}' open: {sizes_text(shape)}",
                "Say which it will meet: a profile of smallest, usual and largest.",
            )
        return None
    ranges = axis_ranges(shape, asked)
    fixed = [(size, extent) for size, extent in zip(shape, ranges, strict=True) if size != -1]
    if any((extent.low, extent.high) != (size, size) for size, extent in fixed):
        raise ConfigError(
            f"{onnx} takes '{image.name}' as {sizes_text(shape)}, which the profile {asked} does not fit",
            "Change the profile where the graph's sizes are fixed, or export the model with them open.",
        )
    if not is_open:
        return None
    profile = builder.create_optimization_profile()
    profile.set_shape(image.name, *([getattr(extent, end) for extent in ranges] for end in ("low", "usual", "high")))
    config.add_optimization_profile(profile)
    return asked
