"""The transition between two continual steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import nn

from rcil.core.errors import ConfigError
from rcil.model.architecture import Architecture
from rcil.nn.classifier import RowStart
from rcil.nn.fold import replace_modules
from rcil.nn.segmenter import Segmenter
from rcil.nn.units.rc import RCConv

M = TypeVar("M", bound=nn.Module)


def begin_step(
    model: Segmenter,
    new_classes: Sequence[str],
    *,
    rows: RowStart = "background",
    merge: bool = True,
    freeze: bool = True,
    preserve: bool = False,
) -> Segmenter:
    """The network at the start of the next step; `model` stays as it is and can serve as the teacher.

    Args:
        model: The network of the step before, not folded.
        new_classes: Names of the classes that this step adds. Empty for a step of the domain kind, which brings new
            scenes and no new class.
        rows: How the new classifier rows start, see `IncrementalClassifier.extended`.
        merge: Merge both branches of every RC block into its old branch (the paper). Off for ablations.
        freeze: Freeze the old branches (the paper). Off for ablations.
        preserve: Also start the new branches from the merged convs, so that the network still computes what it did.
    """
    if model.arch.folded:
        raise ConfigError(
            "a folded network has no branch left to train",
            "Start the step from the checkpoint that was folded, not from the folded one.",
        )

    how = {"merge": merge, "freeze": freeze, "preserve": preserve}
    student = next_branches(model, **how)
    if new_classes:
        student.classifier = model.classifier.extended(new_classes, rows)
    student.arch = next_architecture(model.arch, **how)
    return student


def next_branches(module: M, *, merge: bool = True, freeze: bool = True, preserve: bool = False) -> M:
    """A copy of any network with every RC block at the start of its next step; see `RCConv.next_step`."""

    def visit(_: str, part: nn.Module) -> nn.Module | None:
        if not isinstance(part, RCConv):
            return None
        return part.next_step(merge=merge, freeze=freeze, preserve=preserve)

    return replace_modules(module, visit)


def remix(model: Segmenter, **changes: object) -> None:
    """Change how the branches of every RC block are mixed: fields of `RC`; without a change nothing happens."""
    assert model.arch.rc is not None
    arch = model.arch.replace(rc={**model.arch.rc.model_dump(), **changes})
    if arch.rc is None or arch == model.arch:
        return
    for block in model.modules():
        if isinstance(block, RCConv):
            block.remix(arch.rc)
    model.arch = arch


def next_architecture(
    arch: Architecture, *, merge: bool = True, freeze: bool = True, preserve: bool = False
) -> Architecture:
    """The description of what `next_branches` gives; a plain network stays as it is."""
    if arch.rc is None:
        return arch
    changes: dict[str, object] = {"frozen": freeze}
    if merge:
        changes["old"] = "merged"
    if preserve:
        changes["new"] = "merged"
    return arch.replace(rc={**arch.rc.model_dump(), **changes})
