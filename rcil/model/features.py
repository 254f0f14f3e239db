"""What a checkpoint remembers of the features of its classes: means, deviations, correlation.

Neither torch nor numpy is needed to read a description, so `rcil info` starts without them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from rcil.model.architecture import FrozenModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
    Wide = NDArray[np.float64]

STORED = "<f2"
SUMS = "<f8"
EXPONENT = 0x7C
"""The bits of the exponent in the high byte of a half: all of them are set in infinity and NaN only."""
LARGEST = 65504.0
"""The largest number of `STORED`."""


class RidgeSums(FrozenModel):
    """Sums over the pixels of all steps, from which ridge regression finds the rows; see `rcil.methods.ridge`.

    Arrays are stored as fp64 in base64, some hundreds of kilobytes: the smallest eigenvalues of the products are many
    orders of magnitude below the largest, and rounding to fp32 would bury them.
    """

    products: str
    """Upper triangle of the products of all pairs of inputs, the features and a 1 [(D + 1) (D + 2) / 2]."""
    targets: str
    """Products of inputs and targets [D + 1, C]."""

    @classmethod
    def of(cls, products: Wide, targets: Wide) -> RidgeSums:
        """Store arrays [D + 1, D + 1] and [D + 1, C]."""
        import numpy as np

        upper = products[np.triu_indices(len(products))]
        texts = (base64.b64encode(values.astype(SUMS).tobytes()).decode("ascii") for values in (upper, targets))
        return cls(**dict(zip(("products", "targets"), texts, strict=True)))

    def arrays(self) -> tuple[Wide, Wide]:
        """The arrays that were stored."""
        import numpy as np

        upper, flat = (np.frombuffer(base64.b64decode(text), SUMS) for text in (self.products, self.targets))
        inputs = math.isqrt(2 * len(upper))
        products = np.zeros((inputs, inputs))
        products[np.triu_indices(inputs)] = upper
        return products + np.triu(products, 1).T, flat.reshape(inputs, -1)

    def check(self, width: int, classes: int) -> None:
        """Raise unless the arrays are finite and have the sizes for so many features and classes."""
        inputs = width + 1
        for name, numbers in (("products", inputs * (inputs + 1) // 2), ("targets", inputs * classes)):
            values = memoryview(base64.b64decode(getattr(self, name), validate=True))
            if values.nbytes != 8 * numbers:
                raise ValueError(f"{name} are not {numbers} numbers")
            pairs = zip(values[7::8], values[6::8], strict=True)
            if any(high & 0x7F == 0x7F and low & 0xF0 == 0xF0 for high, low in pairs):  # all bits of the exponent
                raise ValueError(f"{name} are not finite")


class FeatureStatistics(FrozenModel):
    """Statistics of the classifier's inputs, class by class, from which features of old classes can be drawn.

    Some tens of kilobytes take the place of old images: no image can be restored from them. Arrays are stored as fp16
    in base64, so that the file's header stays small.
    """

    width: Annotated[int, Field(ge=1, le=4096)]
    """Number of features D."""
    counts: tuple[Annotated[int, Field(ge=0)], ...]
    """Pixels that each class [C] was measured on; 0 if nothing is known of it."""
    means: str
    """[C, D]."""
    deviations: str
    """Standard deviations within each class [C, D]."""
    correlation: str
    """Correlation of the features within classes [D, D], the same for all classes."""
    ridge: RidgeSums | None = None
    """Kept if the rows are those of ridge regression."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, rows in (("means", len(self.counts)), ("deviations", len(self.counts)), ("correlation", self.width)):
            halves = memoryview(base64.b64decode(getattr(self, name), validate=True))
            if halves.nbytes != 2 * rows * self.width:
                raise ValueError(f"{name} are not {rows} x {self.width} numbers")
            if any(high & EXPONENT == EXPONENT for high in halves[1::2]):
                raise ValueError(f"{name} are not finite")
        if self.ridge is not None:
            self.ridge.check(self.width, len(self.counts))
        return self

    @classmethod
    def of(cls, counts: Sequence[int], means: Array, deviations: Array, correlation: Array) -> FeatureStatistics:
        """Store arrays of the shapes of the fields."""
        return cls(
            width=means.shape[1],
            counts=tuple(int(count) for count in counts),
            means=_encoded(means),
            deviations=_encoded(deviations),
            correlation=_encoded(correlation),
        )

    def arrays(self) -> tuple[Array, Array, Array]:
        """Means, deviations and correlation."""
        import numpy as np

        shapes = ((len(self.counts), self.width), (len(self.counts), self.width), (self.width, self.width))
        texts = (self.means, self.deviations, self.correlation)
        means, deviations, correlation = (
            np.frombuffer(base64.b64decode(text), STORED).astype(np.float32).reshape(shape)
            for text, shape in zip(texts, shapes, strict=True)
        )
        return means, deviations, correlation


def _encoded(values: Array) -> str:
    return base64.b64encode(values.clip(-LARGEST, LARGEST).astype(STORED).tobytes()).decode("ascii")
