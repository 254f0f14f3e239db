"""The transition between two continual steps, and the branches that a plain network needs for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import nn

from rcil.core.errors import ConfigError
from rcil.model.architecture import RC, Architecture
from rcil.model.attached import AttachedArchitecture
from rcil.nn.fold import replace_modules
from rcil.nn.network import Network, RowStart
from rcil.nn.units.rc import RCConv

M = TypeVar("M", bound=nn.Module)
A = TypeVar("A", Architecture, AttachedArchitecture)


def begin_step(
    model: Network,
    new_classes: Sequence[str],
    *,
    rows: RowStart = "background",
    merge: bool = True,
    freeze: bool = True,
    preserve: bool = False,
    absorb: bool = False,
) -> Network:
    """The network at the start of the next step; `model` is not changed and can serve as the teacher.

    Args:
        model: The network of the previous step; a folded one must be unfolded first.
        new_classes: Names of the classes that this step adds; empty for a domain step, which only adds new scenes.
        rows: How the new classifier rows start, see `IncrementalClassifier.extended`.
        merge: Merge both branches of every RC block into its old branch (the paper). Off for ablations.
        freeze: Freeze the old branches (the paper). Off for ablations.
        preserve: Also start the new branches from the merged convs, so that the function of the network is preserved.
        absorb: Train the new branches without norms, which their convs absorb. Off in the paper.
    """
    _check_norms(model)
    how = {"merge": merge, "freeze": freeze, "preserve": preserve, "absorb": absorb}
    student = next_branches(model, **how)
    if new_classes:
        student.grow(new_classes, rows)
    arch = model.arch
    if isinstance(arch, Architecture):
        student.arch = next_architecture(arch, **how)
    else:
        assert isinstance(arch, AttachedArchitecture)  # adopted graphs have no network
        student.arch = next_architecture(arch, **how)
    return student


def next_branches(
    module: M, *, merge: bool = True, freeze: bool = True, preserve: bool = False, absorb: bool = False
) -> M:
    """A copy of any network with every RC block at the start of its next step; see `RCConv.next_step`."""

    def visit(_: str, part: nn.Module) -> nn.Module | None:
        if not isinstance(part, RCConv):
            return None
        return part.next_step(merge=merge, freeze=freeze, preserve=preserve, absorb=absorb)

    return replace_modules(module, visit)


def remix(model: Network, **changes: object) -> None:
    """Change how the branches of every RC block are mixed; `changes` are fields of `RC`."""
    assert model.arch.rc is not None
    arch = model.arch.replace(rc={**model.arch.rc.model_dump(), **changes})
    if arch.rc is None or arch == model.arch:
        return
    for block in model.modules():
        if isinstance(block, RCConv):
            block.remix(arch.rc)
    model.arch = arch


def next_architecture(
    arch: A, *, merge: bool = True, freeze: bool = True, preserve: bool = False, absorb: bool = False
) -> A:
    """The architecture after `next_branches`; that of a plain network does not change."""
    if arch.rc is None:
        return arch
    changes: dict[str, object] = {"frozen": freeze}
    if merge:
        changes["old"] = "merged"
    if preserve or absorb:
        changes["new"] = "merged"
    return arch.replace(rc={**arch.rc.model_dump(), **changes})


def add_branches(model: Network, rc: RC | None = None) -> Network:
    """A network with RC blocks that computes the same as the plain `model`, which is not changed.

    Both branches of every block are copies of the original conv and norm, so that in evaluation mode any mix of the
    two gives the same map.

    Args:
        model: A network without RC; a folded one must be unfolded first.
        rc: How the branches are mixed; the paper's way by default.
    """
    _check_norms(model)
    if model.arch.rc is not None:
        raise ConfigError("the network already has two branches", "Use it without adding branches.")
    return model.branched(rc or RC())


def _check_norms(model: Network) -> None:
    if model.arch.folded:
        raise ConfigError(
            "a folded network has no norms left to train",
            "Fit norms to some images first, with `rcil.nn.unfold`, or start from the checkpoint before folding.",
        )
