"""The exponential moving average of the weights of a network."""

from __future__ import annotations

import torch

from rcil.nn import Network
from rcil.nn.fold import duplicate


class WeightAverage:
    """A copy of a network whose weights follow those of the original slowly.

    Norm statistics are averaged too, counters are copied. The decay of update i is at most (1 + i) / (10 + i), so that
    the random start is forgotten quickly.
    """

    def __init__(self, model: Network, decay: float) -> None:
        self.model = duplicate(model, {})
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, model: Network) -> None:
        """Move the average towards `model`, which was just updated."""
        self.updates += 1
        share = 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))
        mine, theirs = self.model.state_dict(), model.state_dict()
        real = [key for key, value in mine.items() if value.is_floating_point()]
        torch._foreach_lerp_([mine[key] for key in real], [theirs[key] for key in real], share)
        for key in mine.keys() - set(real):
            mine[key].copy_(theirs[key])

    def state_dict(self) -> dict[str, object]:
        """The state for resuming."""
        return {"model": self.model.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore a state from `state_dict`."""
        self.model.load_state_dict(state["model"])  # type: ignore[arg-type]
        self.updates = int(state["updates"])  # type: ignore[call-overload]
