"""A fresh export of a checkpoint with the options that a delivered graph states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from rcil.checkpoint.file import load_for_inference
from rcil.classify.checkpoint import load_classifier
from rcil.classify.network import fold_classifier
from rcil.core.errors import CheckpointError, ConfigError, RcilError, first_line
from rcil.core.files import sha256_of
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil_export.classify.interface import ClassifierInterface
from rcil_export.classify.to_onnx import classifier_to_onnx
from rcil_export.convert import convert, deployed_metadata
from rcil_export.graph.description import parse_any_description
from rcil_export.graph.interface import Interface
from rcil_export.precision.record import ConversionRecord, read_record
from rcil_export.precision.replay import replay

AnyInterface = Interface | ClassifierInterface
AGAIN = "Export it again with this version of rcil-export."


class RecordError(CheckpointError):
    """A converted graph whose record is missing, damaged, or of another graph."""


@dataclass(frozen=True)
class Rebuilt:
    """A fresh export."""

    exact: onnx.ModelProto
    """In fp32."""
    document: onnx.ModelProto
    """In the precision that was delivered."""
    record: ConversionRecord | None
    """What the delivered graph says about its conversion; None in fp32."""


@dataclass(frozen=True)
class Source:
    """The checkpoint that a delivery is compared with."""

    path: Path
    calibrate: Path | None = None
    """The images that a conversion was measured on."""

    def check(self) -> None:
        """Raise unless the file is a checkpoint that can be exported."""
        if self.metadata.kind == "backbone":
            raise CheckpointError(
                f"{self.path} holds a backbone without classes", "Name the checkpoint that the model was exported from."
            )

    @cached_property
    def sha256(self) -> str:
        """Of the checkpoint file."""
        return sha256_of(self.path)

    @cached_property
    def metadata(self) -> Metadata:
        """What a graph of this checkpoint carries."""
        return deployed_metadata(read_header(self.path).metadata, self.path)

    def interface_of(self, texts: Mapping[str, str], source: str) -> AnyInterface:
        """What a delivered graph or sidecar states, read as a graph of this checkpoint."""
        metadata, interface = parse_any_description(texts, source)
        if isinstance(metadata, ClassifierMetadata) != isinstance(self.metadata, ClassifierMetadata):
            raise CheckpointError(
                f"{source} describes a {metadata.kind}, and {self.path} holds a {self.metadata.kind}",
                "Name the checkpoint that the model was exported from.",
            )
        return interface

    def rebuilt(self, delivered: onnx.ModelProto, interface: AnyInterface) -> Rebuilt:
        """The graph again in the precision that the delivered one states, converted as its record says."""
        exact = self.exact(interface)
        if interface.precision == "fp32":
            return Rebuilt(exact, exact, None)
        try:
            record = read_record(delivered)
            if record is None:
                raise RecordError(f"nothing says how it became {interface.precision}", AGAIN)
            return Rebuilt(exact, replay(exact, record), record)
        except (CheckpointError, ConfigError, LookupError, ValueError, AssertionError) as error:
            why = error.message if isinstance(error, RcilError) else first_line(error)
            raise RecordError(f"the conversion cannot be repeated: {why}", AGAIN) from error

    def exact(self, interface: AnyInterface) -> onnx.ModelProto:
        """The fp32 graph with this interface, folded and exported again."""
        if isinstance(interface, ClassifierInterface):
            assert isinstance(self.metadata, ClassifierMetadata)
            classifier, _ = load_classifier(self.path)
            folded = classifier if classifier.arch.folded else fold_classifier(classifier)[0]
            return classifier_to_onnx(folded, self.metadata, interface)
        plain = interface.model_copy(update={"precision": "fp32", "folded": True})
        model, _ = load_for_inference(self.path)
        return convert(model, self.metadata, plain).document
