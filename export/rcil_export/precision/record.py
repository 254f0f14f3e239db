"""What a conversion to a reduced precision depended on, stored in the ONNX file so that it can be repeated.

No torch and no ONNX Runtime here: `rcil-export inspect` reads records.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal, Self

import onnx
from onnx import helper
from pydantic import ConfigDict, Field, ValidationError, model_validator

from rcil import __version__
from rcil.core.errors import CheckpointError, ConfigError
from rcil.model.architecture import FrozenModel
from rcil_export.graph.description import first_problem
from rcil_export.graph.interface import Interface, Precision
from rcil_export.graph.lint import check_graph
from rcil_export.graph.onnx_file import describe, description_of, texts_of
from rcil_export.images import GENERATED_VERSION

CONVERSION_KEY = "rcil.conversion"
"""Key in the ONNX file's metadata."""
PACKAGES = ("onnx", "onnxruntime", "onnxruntime-gpu", "numpy")
Form = Literal["cpu", "qdq"]
"""`cpu`: uint8 values, as ONNX Runtime's CPU kernels want them. `qdq`: symmetric int8, as TensorRT wants it."""
WeightBits = Literal[7, 8]
Method = Literal["percentile", "entropy"]
Span = tuple[float, float]
"""The lower and the upper end of a range; numbers that float32 holds exactly."""


@dataclass(frozen=True)
class CalibrationOptions:
    """How ranges of values are chosen."""

    method: Method = "percentile"
    percentile: float = 99.99
    """Share of values, in percent, that the range covers; larger ones are clipped."""

    def __post_init__(self) -> None:
        if not 50 < self.percentile <= 100:
            raise ConfigError(f"percentile {self.percentile} gives no range", "Choose one above 50, up to 100.")


class _Finite(FrozenModel):
    model_config = ConfigDict(allow_inf_nan=False)


class RecordedImage(_Finite):
    """One image that the graph was measured on."""

    name: str
    """Path below the folder of images, with forward slashes."""
    sha256: str


class GeneratedImages(_Finite):
    """Images that `generated_images` drew, which depend on these numbers alone."""

    count: int
    size: tuple[int, int]
    """Height and width."""
    seed: int = 0
    version: int = GENERATED_VERSION


class ConversionRecord(_Finite):
    """Everything that a conversion to fp16, bf16 or int8 depended on, apart from the fp32 graph."""

    format: Literal[1] = 1
    precision: Literal["fp16", "bf16", "int8"]
    kept_fp32: dict[str, str]
    """Nodes kept in fp32, with the reason; for int8 the convs left out of the quantisation."""
    form: Form | None = None
    """int8 only, like the next three fields."""
    weight_bits: WeightBits | None = None
    calibration: CalibrationOptions | None = None
    ranges: dict[str, Span] = Field(default_factory=dict)
    """Range of every value that can be quantised, by the value's name."""
    magnitudes: dict[str, float] = Field(default_factory=dict)
    """fp16 only: the largest magnitude of every value, by the value's name."""
    sums: dict[str, float] = Field(default_factory=dict)
    """fp16 only: the largest sum of magnitudes that a node adds up, by the node's name."""
    images: tuple[RecordedImage, ...] | GeneratedImages
    """The images that the graph was measured on."""
    versions: dict[str, str]
    """Versions of the packages that took part."""

    @model_validator(mode="after")
    def _int8_is_complete(self) -> Self:
        given = (self.form, self.weight_bits, self.calibration)
        if (self.precision == "int8") != all(value is not None for value in given):
            raise ValueError("form, weight_bits and calibration belong to int8, and to nothing else")
        return self

    def summary(self) -> dict[str, object]:
        """The record without its long tables, for people and for JSON."""
        summary: dict[str, object] = {"precision": self.precision, "kept in fp32": len(self.kept_fp32)}
        if self.calibration is not None:
            percentile = f" {self.calibration.percentile:g}" if self.calibration.method == "percentile" else ""
            summary |= {"form": self.form, "weight_bits": self.weight_bits}
            summary["calibration"] = f"{self.calibration.method}{percentile}"
        if isinstance(self.images, GeneratedImages):
            summary["measured on"] = f"{self.images.count} generated images"
        else:
            summary["measured on"] = f"{len(self.images)} images"
        return {**summary, "versions": dict(self.versions)}


def package_versions() -> dict[str, str]:
    """Versions of the packages that take part in a conversion."""
    found = {"rcil": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except ModuleNotFoundError:  # one of the two builds of ONNX Runtime is installed
            continue
    return found


def store_record(document: onnx.ModelProto, record: ConversionRecord) -> onnx.ModelProto:
    """Write the record into the document's metadata, where it replaces an older one; returns the document."""
    texts = {entry.key: entry.value for entry in document.metadata_props if entry.key != CONVERSION_KEY}
    helper.set_model_props(document, {**texts, CONVERSION_KEY: record.model_dump_json(exclude_defaults=True)})
    return document


def read_record(document: onnx.ModelProto, source: object = "the graph") -> ConversionRecord | None:
    """The record of a converted graph, or None if it has none."""
    text = texts_of(document).get(CONVERSION_KEY)
    if text is None:
        return None
    try:
        return ConversionRecord.model_validate_json(text)
    except ValidationError as error:
        raise CheckpointError(
            f"{source}: the record of its conversion is damaged: {first_problem(error)}",
            "Export it again with rcil-export.",
        ) from error


def fp32_interface(document: onnx.ModelProto, wanted: Precision) -> Interface:
    """The interface of a graph that is about to be converted; raises if it was converted before."""
    interface = description_of(document)[1]
    if interface.precision != "fp32":
        raise ConfigError(
            f"the graph is in {interface.precision} already, so it cannot become {wanted}",
            "Export the checkpoint in fp32 and convert that.",
        )
    return interface


def finish(document: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """Store the precision in the description and check the graph."""
    metadata, interface = description_of(document)
    interface = interface.model_copy(update={"precision": precision})
    describe(document, metadata, interface)
    check_graph(document, interface)
    return document
