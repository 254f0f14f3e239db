"""Whether a graph takes and gives exactly what its interface says: names, element types and axes. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto

from rcil_export.checks.result import Item
from rcil_export.classify.interface import ClassifierInterface
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.graph.postprocessing import output_dims
from rcil_export.graph.preprocessing import input_dims

Axes = list[int | str]
ROWS = ("mask", "label")
"""Outputs of class rows; all others are numbers."""


def interface_item(document: onnx.ModelProto, interface: Interface | ClassifierInterface, classes: int) -> Item:
    """One input `image` and exactly the declared outputs.

    Args:
        document: The graph.
        interface: As the file records it.
        classes: Class rows of the checkpoint that the file was made from.
    """
    problems = [*_input_problems(document, interface), *_output_problems(document, interface, classes)]
    ends = [*document.graph.input, *document.graph.output]
    measured = "; ".join(problems) or ", ".join(f"{value.name} {_type_of(value)}" for value in ends)
    required = f"exactly the input {INPUT_NAME} and the outputs {', '.join(interface.outputs)}, with their types"
    return Item("interface", "Inputs and outputs", not problems, measured, required, {"problems": problems})


def _input_problems(document: onnx.ModelProto, interface: Interface | ClassifierInterface) -> Iterator[str]:
    kind = TensorProto.UINT8 if interface.input == "uint8" else TensorProto.FLOAT
    wanted = {INPUT_NAME: (kind, input_dims(interface.shape, interface))}
    yield from _differences("input", document.graph.input, wanted)


def _output_problems(
    document: onnx.ModelProto, interface: Interface | ClassifierInterface, classes: int
) -> Iterator[str]:
    integer = TensorProto.UINT8 if classes <= 256 else TensorProto.INT32
    wanted: dict[str, tuple[int, Axes]] = {
        name: (integer if name in ROWS else TensorProto.FLOAT, output_dims(name, classes, interface.shape))
        for name in interface.outputs
    }
    yield from _differences("output", document.graph.output, wanted)


def _differences(
    side: str, values: Sequence[onnx.ValueInfoProto], wanted: Mapping[str, tuple[int, Axes]]
) -> Iterator[str]:
    names = [value.name for value in values]
    for name in wanted:
        if name not in names:
            yield f"the {side} {name} is missing"
    for name in dict.fromkeys(names):
        if name not in wanted:
            yield f"the {side} {name} is not declared"
        if names.count(name) > 1:
            yield f"the {side} {name} occurs {names.count(name)} times"
    if set(names) == set(wanted) and len(names) == len(wanted) and names != list(wanted):
        yield f"the {side}s are in the order {', '.join(names)}, not {', '.join(wanted)}"
    for value in values:
        if value.name in wanted:
            kind, axes = wanted[value.name]
            if value.type.tensor_type.elem_type != kind:
                yield f"the {side} {value.name} is {_kind_of(value)}, not {_kind_name(kind)}"
            if axes_of(value) != axes:
                yield f"the {side} {value.name} has the axes {axes_of(value)}, not {axes}"


def axes_of(value: onnx.ValueInfoProto) -> Axes:
    """Lengths or names of the axes that a value declares; `?` for an axis without either."""
    dims: Sequence[Any] = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]


def _type_of(value: onnx.ValueInfoProto) -> str:
    return f"{_kind_of(value)} {axes_of(value)}"


def _kind_of(value: onnx.ValueInfoProto) -> str:
    return _kind_name(value.type.tensor_type.elem_type)


def _kind_name(kind: int) -> str:
    try:
        return TensorProto.DataType.Name(kind).lower()
    except ValueError:
        return f"element type {kind}"
