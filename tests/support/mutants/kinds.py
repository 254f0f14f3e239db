"""What a mutant is, and the list of all that change a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import onnx

from mutants.editing import copied

Form = Literal["fp32", "dynamic", "fp16", "int8", "qdq", "lite", "classifier"]
FORMS: tuple[Form, ...] = ("fp32", "dynamic", "fp16", "int8", "qdq", "lite", "classifier")
"""ResNet-18 with fixed and with open sizes, in fp16, in int8 for CPUs and for TensorRT; lite0; a classifier."""
SEGMENTERS: tuple[Form, ...] = tuple(form for form in FORMS if form != "classifier")
FLOATS: tuple[Form, ...] = ("fp32", "dynamic", "lite", "classifier")
"""Forms whose weights are fp32."""
Family = Literal["structure", "numbers", "description", "batch", "size", "precision", "fold", "delivery"]
Change = Callable[[onnx.ModelProto], str]


@dataclass(frozen=True)
class Mutant:
    """One way to spoil a graph."""

    kind: str
    """In words, for the table."""
    family: Family
    change: Change
    """Changes the graph that it is given; returns the layer, node or field that has to be named."""
    forms: tuple[Form, ...]
    unseen: tuple[Form, ...]
    """Forms in which `check` cannot see it: nothing differs that it looks at."""
    seen_as: str
    """What `check` names in some form, where it is not what `verify` names."""

    def of(self, document: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
        """A spoilt copy, and what has to be named."""
        copy = copied(document)
        return copy, self.change(copy)

    def seen_by_check(self, form: Form) -> bool:
        """Whether `check` rejects it."""
        return form not in self.unseen


MUTANTS: dict[str, Mutant] = {}


def mutant(
    family: Family, kind: str, forms: tuple[Form, ...] = FORMS, unseen: tuple[Form, ...] = (), seen_as: str = ""
) -> Callable[[Change], Change]:
    """Adds a function to the list under its name."""

    def add(change: Change) -> Change:
        assert change.__name__ not in MUTANTS, change.__name__
        MUTANTS[change.__name__] = Mutant(kind, family, change, forms, unseen, seen_as)
        return change

    return add
