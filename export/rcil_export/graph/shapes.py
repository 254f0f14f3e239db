"""Sizes that an exported graph takes: fixed, or a range with the usual size to optimise for. No torch here."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, model_validator

from rcil.core.errors import ConfigError
from rcil.model.architecture import FrozenModel

MAX_PIXELS = 2**30
"""Pixels of the smallest batch that a graph takes, which every user of the graph must provide."""
DEFAULT_SIZE = (512, 512)
"""Height and width of the input if the user names none."""
MAX_LENGTH = 2**63 - 1
"""The largest length of an axis in ONNX."""
SIDE = r"([1-9]\d{0,4})"


class Extent(FrozenModel):
    """One axis: smallest, usual and largest length."""

    low: int = Field(ge=1)
    usual: int = Field(ge=1)
    high: int = Field(ge=1, le=MAX_LENGTH)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.usual <= self.high:
            raise ValueError(f"{self.low}, {self.usual}, {self.high} are not in order: smallest, usual, largest")
        return self

    @classmethod
    def of(cls, length: int) -> Extent:
        """An axis that never changes."""
        return cls(low=length, usual=length, high=length)

    @property
    def fixed(self) -> bool:
        """Whether there is only one length."""
        return self.low == self.high

    def __str__(self) -> str:
        return str(self.low) if self.fixed else f"{self.low}..{self.high}"


class InputShape(FrozenModel):
    """Batch, height and width of the images that a graph takes."""

    batch: Extent
    height: Extent
    width: Extent

    @model_validator(mode="after")
    def _not_absurd(self) -> Self:
        if self.batch.low * self.height.low * self.width.low > MAX_PIXELS:
            raise ValueError(f"batches of {self} have more than {MAX_PIXELS} pixels")
        return self

    @classmethod
    def of(cls, height: int, width: int, batch: int = 1) -> InputShape:
        """One fixed shape."""
        return cls(batch=Extent.of(batch), height=Extent.of(height), width=Extent.of(width))

    @property
    def static(self) -> bool:
        """Whether nothing varies."""
        return self.batch.fixed and self.one_size

    @property
    def one_size(self) -> bool:
        """Whether all images have the same height and width."""
        return self.height.fixed and self.width.fixed

    @property
    def usual(self) -> tuple[int, int, int]:
        """Batch, height and width to optimise for and to test with."""
        return self.batch.usual, self.height.usual, self.width.usual

    @property
    def profile(self) -> InputShape | None:
        """The range of sizes to tell TensorRT; None where nothing varies."""
        return None if self.static else self

    def takes(self, height: int, width: int) -> bool:
        """Whether an image of this size fits."""
        return self.height.low <= height <= self.height.high and self.width.low <= width <= self.width.high

    def __str__(self) -> str:
        return f"{self.batch} x {self.height} x {self.width}"


def parse_size(text: str) -> tuple[int, int]:
    """`512x1024` -> (512, 1024), height first."""
    match = re.fullmatch(f"{SIDE}x{SIDE}", text.strip())
    if match is None:
        raise ConfigError(f"'{text}' is not a size", "Write height x width in pixels, for example 512x1024.")
    return int(match[1]), int(match[2])


def parse_shape(size: str | None, dynamic: str | None, batch: str = "1") -> InputShape:
    """The shape that the options `--size`, `--dynamic` and `--batch` ask for.

    Args:
        size: `HxW`; 512x512 if neither this nor `dynamic` is given.
        dynamic: `HxW:HxW:HxW`, smallest, usual, largest.
        batch: `N`, or `N:N:N`.
    """
    if size is not None and dynamic is not None:
        raise ConfigError("--size and --dynamic exclude each other", "Give one of them.")
    if dynamic is None:
        sizes = [DEFAULT_SIZE if size is None else parse_size(size)] * 3
    else:
        sizes = [parse_size(part) for part in dynamic.split(":")]
        if len(sizes) != 3:
            raise ConfigError(
                f"'{dynamic}' is not a range of sizes",
                "Write smallest:usual:largest, for example 256x256:512x1024:1024x2048.",
            )
    counts = batch.split(":")
    if len(counts) not in (1, 3) or not all(re.fullmatch(SIDE, count) for count in counts):
        raise ConfigError(f"'{batch}' is not a batch", "Write a number, or smallest:usual:largest, for example 1:4:8.")
    heights, widths = zip(*sizes, strict=True)
    batches = _extent([int(count) for count in counts] * (3 // len(counts)), "--batch")
    height, width = _extent(heights, "--dynamic"), _extent(widths, "--dynamic")
    if batches.low * height.low * width.low > MAX_PIXELS:
        raise ConfigError(f"{batches.low} images of {height.low}x{width.low} are too large", "Choose a smaller size.")
    return InputShape(batch=batches, height=height, width=width)


def _extent(values: tuple[int, ...] | list[int], option: str) -> Extent:
    low, usual, high = values
    if not low <= usual <= high:
        raise ConfigError(f"{option}: {low}, {usual}, {high} are not in order", "Write smallest:usual:largest.")
    return Extent(low=low, usual=usual, high=high)
