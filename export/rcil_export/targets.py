"""Which files an export makes: by default an ONNX file, and an engine where one can be built."""

from __future__ import annotations

from typing import NamedTuple

from rcil.core.errors import RcilError
from rcil_export.engine.flavour import choose_gpus, find_flavour
from rcil_export.graph.interface import GraphInterface
from rcil_export.request import AUTO, TARGETS, Target, parse_targets
from rcil_export.runtime.forms import check_engine_form


class ChosenTargets(NamedTuple):
    """What is made, and why."""

    names: tuple[Target, ...]
    reason: str = ""
    """One line for the user, if the choice was left to the program."""


def choose_targets(
    text: str, interface: GraphInterface, *, flavour: str = "auto", gpus: tuple[str, ...] = ()
) -> ChosenTargets:
    """The targets that `--target` names; `auto` adds an engine if one can be built here.

    Options about engines ask for one: with them, what prevents an engine is an error later, and not a reason to leave
    it out.

    Args:
        text: `auto`, or comma-separated targets.
        interface: The graph that an engine would be built from.
        flavour: The TensorRT that is asked for; `auto` leaves the choice.
        gpus: The compute capabilities that are asked for.
    """
    if text.strip() != AUTO:
        return ChosenTargets(parse_targets(text))
    if gpus or flavour != AUTO:
        return ChosenTargets(TARGETS)
    try:
        check_engine_form(interface, "the graph asked for")
        found = find_flavour()
        built_for = choose_gpus(found, (), interface.precision)
    except RcilError as error:
        return ChosenTargets(("onnx",), f"no engine: {error.message}. {error.hint}")
    where = "without a GPU" if found.name == "rtx" else "on the GPU of this machine"
    reason = f"engine: {found.title} builds it {where}, for {', '.join(built_for)}; `--target onnx` leaves it out"
    return ChosenTargets(TARGETS, reason)
