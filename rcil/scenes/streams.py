"""Random streams that depend on what is drawn, never on what was drawn before."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from rcil.core.errors import ConfigError


class Stream(IntEnum):
    """One stream per purpose, so that a change of weather leaves the objects where they are."""

    LAYOUT = 0
    CAMERA = 1
    CLIP_LAYOUT = 2
    CLIP_CAMERA = 3


def stream(seed: int, index: int, purpose: Stream) -> np.random.Generator:
    """The generator of one purpose of one image; equal arguments give equal draws in any process."""
    if seed < 0 or index < 0:
        raise ConfigError(f"seed {seed} and index {index} must not be negative", "Use 0 or a positive whole number.")
    return np.random.default_rng(np.random.SeedSequence([seed, index], spawn_key=(int(purpose),)))
