"""What the descriptions of networks from elsewhere say where our own networks have settings."""

from __future__ import annotations

from typing import Literal

from rcil.model.architecture import FrozenModel


class ForeignArchitecture(FrozenModel):
    """A network that is not one of ours."""

    @property
    def norm(self) -> Literal["batch"]:
        """Norms that can be folded are batch norms; those of a bare graph are unknown, and usually folded."""
        return "batch"

    @property
    def lite(self) -> bool:
        """It is not one of our EfficientNets."""
        return False

    @property
    def blocks(self) -> None:
        """Only our own ResNets state their blocks."""
        return

    @property
    def output_stride(self) -> int:
        """An upper limit, for choosing sizes to check."""
        return 32
