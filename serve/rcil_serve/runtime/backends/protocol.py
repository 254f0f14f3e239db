"""The protocol of all backends."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import RunError
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import Interface

Mask = NDArray[Any]
"""Class rows [..., H, W]: uint8 up to 256 classes, int32 beyond."""


class Outputs(NamedTuple):
    """The outputs of a model for one batch."""

    mask: Mask
    """Class rows [N, H, W]."""
    confidence: NDArray[np.float32] | None
    """Probability of the predicted class [N, H, W]; None if the model was exported without it."""


AXES = {"mask": 3, "confidence": 3, "logits": 4}
"""Number of axes of each output of a batch."""


class Backend(Protocol):
    """One loaded model. `run` may be called from several threads at once."""

    name: str
    """Path of the model file, for messages."""
    sha256: str
    """SHA-256 of the model file."""
    device: str
    """Device it runs on, for messages."""
    metadata: Metadata
    interface: Interface

    def run(self, batch: NDArray[Any]) -> Outputs:
        """Run a batch in the layout and size that `interface` states."""

    def close(self) -> None:
        """Release all resources. May be called twice."""


def outputs_of(values: dict[str, NDArray[Any]], name: str) -> Outputs:
    """Convert the named outputs of a graph to `Outputs`. Without a mask, it is computed from the logits."""
    for key, value in values.items():
        if value.ndim != AXES.get(key, value.ndim):
            raise RunError(f"{name} outputs a {key} of shape {list(value.shape)}", "Export it again.")
    confidence = values.get("confidence")
    if "mask" in values:
        mask = values["mask"]
    elif "logits" in values:
        logits = values["logits"]
        mask = logits.argmax(axis=1).astype(np.uint8 if logits.shape[1] <= 256 else np.int32)
    else:
        raise RunError(f"{name} outputs neither mask nor logits", "Export it with `--outputs mask`.")
    if confidence is not None and confidence.shape != mask.shape:
        shapes = f"{list(confidence.shape)} for a mask of {list(mask.shape)}"
        raise RunError(f"{name} outputs confidences of shape {shapes}", "Export it again.")
    return Outputs(mask, None if confidence is None else confidence.astype(np.float32, copy=False))
