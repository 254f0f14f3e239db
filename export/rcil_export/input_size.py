"""The input size of a graph that the user names none for: that at which the network saw images in its training."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from rcil.core.errors import ConfigError
from rcil.core.log import Notify
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import GraphOptions
from rcil_export.graph.shapes import DEFAULT_SIZE
from rcil_export.images import images_for

MAX_MEASURED = 16
"""Images of a folder whose size is read."""


def with_size(
    options: GraphOptions, model: Path, folder: Path | None, scale: float | None, say: Notify
) -> GraphOptions:
    """The options with an input size, if they have none and it differs from the default.

    A network that was trained on images at half their size works best on inputs of that size. How large the images
    are is known from a folder alone; without one the default size stays, and the user is told what it means.

    Args:
        options: The options of the graph.
        model: The checkpoint.
        folder: Images like those that the graph will see, if the user named some.
        scale: Input size as a multiple of the images' size; None: that of the training.
        say: Receives a line about the size.
    """
    metadata = read_header(model).metadata
    if scale is not None:
        _check_scale(options, metadata, folder)
    factor = metadata.training_scale if scale is None else scale
    if options.size is not None or options.dynamic is not None or (scale is None and factor == 1):
        return options
    if folder is None:
        say(default_notice(metadata))
        return options
    height, width = usual_size(folder)
    size = f"{max(1, round(height * factor))}x{max(1, round(width * factor))}"
    reason = "" if scale is not None else " as in the model's training; change with --size or --scale"
    say(f"input size {size}: images of {height}x{width} at scale {factor:g}{reason}")
    return replace(options, size=size)


def _check_scale(options: GraphOptions, metadata: Metadata, folder: Path | None) -> None:
    """Raise where a scale cannot decide on the input size."""
    for name in ("size", "dynamic"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} and --scale exclude each other", "Give one of them.")
    if metadata.kind == "classifier":
        raise ConfigError("a classifier has the size of its training images", "Leave out --scale.")
    if folder is None:
        raise ConfigError(
            "--scale is relative to the size of images, and no folder of images is given",
            "Name a folder with --images or --calibrate, or give --size.",
        )


def default_notice(metadata: Metadata) -> str:
    """What the default size means for a model that was trained on resized images."""
    size, scale = DEFAULT_SIZE, metadata.training_scale
    frame = "x".join(str(round(side / scale)) for side in size)
    return (
        f"input size {size[0]}x{size[1]}: the model was trained at scale {scale:g}, so this suits images of {frame}; "
        "change with --size"
    )


def usual_size(folder: Path) -> tuple[int, int]:
    """The most frequent height and width of the images of a folder, as far as some of them tell."""
    sizes = (image.pixels.shape[:2] for image in images_for(folder, None, most=MAX_MEASURED))
    height, width = Counter(sizes).most_common(1)[0][0]
    return height, width
