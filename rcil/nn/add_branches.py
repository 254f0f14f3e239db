"""Giving a network that was trained without representation compensation the branches that a step with RC needs."""

from __future__ import annotations

from rcil.core.errors import ConfigError
from rcil.model.architecture import RC
from rcil.nn.build import build
from rcil.nn.segmenter import Segmenter


def add_branches(model: Segmenter, rc: RC | None = None) -> Segmenter:
    """A network with RC blocks that computes what the plain `model` does; `model` stays as it is.

    Both branches of every block are copies of the conv and norm that stand in its place, so that in evaluation mode
    any mix of the two gives the same map.

    Args:
        model: Without RC, not folded.
        rc: How the branches are mixed; by default as in the paper.
    """
    if model.arch.folded:
        raise ConfigError(
            "a folded network has no norms left to train",
            "Start from the checkpoint that was folded, not from the folded one.",
        )
    if model.arch.rc is not None:
        raise ConfigError("the network has two branches already", "Use it as it is.")
    branched = build(model.arch.replace(rc=rc or RC()), model.classifier.steps)
    single = model.state_dict()
    fresh = branched.state_dict()  # a learned mix has no counterpart and keeps its start
    branched.load_state_dict({key: single.get(single_branch(key), value) for key, value in fresh.items()})
    return branched.to(next(model.parameters())).train(model.training)


def single_branch(key: str) -> str:
    """The state-dict key of a conv or norm in the network without RC."""
    return key.replace(".old.", ".").replace(".new.", ".")
