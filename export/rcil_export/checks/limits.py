"""Limits for the differences of two artefacts: defaults for every precision, which the user can change."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from rcil.core.errors import ConfigError, did_you_mean
from rcil.model.architecture import FrozenModel
from rcil_export.graph.interface import PRECISIONS, Precision

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Points = Annotated[float, Field(ge=0)]


class Limits(FrozenModel):
    """Allowed differences of the second artefact from the first; errors are shares of an image's logit range."""

    model_config = ConfigDict(allow_inf_nan=False)

    error: Positive | None
    """Largest error of any logit; None: not limited."""
    agreement: Share
    """Smallest share of pixels with the same class, ties aside."""
    agreement_old_new: Share
    """The same among the pixels of old classes, and among those of new classes. Small objects are mostly border, and
    rounding flips borders first, so this limit is wider than `agreement` where values are rounded."""
    confidence: Share
    """Mean difference of the confidences of an image, where both give them; a difference of probabilities."""
    miou_drop: Points
    """Points of mIoU that may be lost, separately for old, new and all classes."""
    tie: Share = 1e-5
    """Two classes whose logits are closer than this are a tie, and either is right."""
    node: Positive
    """Largest error that one layer may add by itself, as a share of the range of its output; for `--bisect`."""
    drift: Positive | None = None
    """99 % quantile of the drift of old-class logits of a step against its parent; None: reported, not limited."""


DEFAULTS: dict[Precision, Limits] = {
    "fp32": Limits(error=1e-4, agreement=1, agreement_old_new=1, confidence=1e-4, miou_drop=0.05, node=2e-5),
    "fp16": Limits(error=0.02, agreement=0.999, agreement_old_new=0.995, confidence=0.01, miou_drop=0.1, node=0.01),
    "bf16": Limits(error=0.15, agreement=0.99, agreement_old_new=0.96, confidence=0.05, miou_drop=0.5, node=0.08),
    "int8": Limits(error=None, agreement=0.97, agreement_old_new=0.9, confidence=0.1, miou_drop=1, node=1e-3),
}
"""Why these numbers.

fp32: two orders of summation of one network differ by about 1e-6 of the logit range, and no pixel may change its class
unless it was a tie. A branch whose weight is a thousandth too large can stay below all of this, because later layers
hide it. `node` finds it, because layers are compared one by one: rounding is at most 5e-6 there, such a branch 1e-4.
fp16: one rounding is 5e-4, and a hundred layers add up like a random walk to about 5e-3; 0.02 leaves a margin.
bf16: eight times coarser than fp16, so eight times the error and the flipped border.
`node` of fp16 and bf16 is for finding gross mistakes; rounding alone was seen to reach 0.004 and 0.04. Layers of int8
are compared with those of the reference rounded in the same way, so that an honest one has no error at all.
`confidence`: a probability moves by at most half of what the logits move by, and most of that at the borders of
objects; so the mean is limited. A wrong axis or a missing softmax is off by tenths.
int8: single logits are clipped on purpose, so their largest error says nothing. What counts is the mask: one point of
mIoU is what post-training quantisation is commonly granted, and 3 % of pixels is about the border of the objects.
"""


def limits_for(first: Precision, second: Precision, changes: dict[str, float] | None = None) -> Limits:
    """The limits for a pair of precisions: those of the less exact one, with the user's changes."""
    coarser = max(first, second, key=PRECISIONS.index)
    return _checked({**DEFAULTS[coarser].model_dump(), **(changes or {})})


def parse_limits(text: str) -> dict[str, float]:
    """`agreement=0.995,miou_drop=1` -> those changes, checked; for `limits_for`."""
    changes: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        _check_name(name)
        try:
            changes[name] = float(value)
        except ValueError as error:
            raise ConfigError(
                f"the limit {name} needs a number, not '{value if equals else ''}'", f"Write for example {name}=0.5."
            ) from error
    _checked({**DEFAULTS["fp32"].model_dump(), **changes})
    return changes


def _check_name(name: str) -> None:
    if name not in Limits.model_fields:
        raise ConfigError(f"unknown limit '{name}'", did_you_mean(name, Limits.model_fields))


def _checked(values: dict[str, Any]) -> Limits:
    for name in values:
        _check_name(name)
    try:
        return Limits.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        hint = "Agreement and tie are shares from 0 to 1; errors are shares of a range; miou_drop is in points."
        raise ConfigError(f"the limit {name}={first['input']} is not possible: {first['msg']}", hint) from error
