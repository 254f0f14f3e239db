"""What the graph of a classifier takes and gives. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from rcil_export.graph.interface import InputKind, Opset
from rcil_export.graph.shapes import InputShape


class ClassifierInterface(BaseModel):
    """Input, outputs and numbers of an exported classifier; stored where `Interface` is for segmenters."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    shape: InputShape
    input: InputKind = "uint8"
    """As of `Interface`."""
    outputs: tuple[Literal["label"], Literal["scores"]] = ("label", "scores")
    """`label` [N]: the class row with the largest score. `scores` [N, classes]: logits, or scaled similarities."""
    precision: Literal["fp32"] = "fp32"
    opset: Opset = 18
    folded: Literal[True] = True
