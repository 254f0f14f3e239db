"""A fresh export of a checkpoint with the options that a delivered graph states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from rcil.core.errors import CheckpointError, ConfigError, RcilError, first_line
from rcil.core.files import sha256_of
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil_export.convert import deployed_metadata
from rcil_export.graph.description import parse_any_description
from rcil_export.graph.interface import GraphInterface
from rcil_export.precision.record import ConversionRecord, read_record
from rcil_export.precision.replay import replay
from rcil_export.run import exportable_kind

AGAIN = "Export it again with this version of rcil-export."


class RecordError(CheckpointError):
    """A converted graph whose record is missing, damaged, or of another graph."""


@dataclass(frozen=True)
class Rebuilt:
    """A fresh export."""

    exact: onnx.ModelProto
    """The graph in fp32."""
    document: onnx.ModelProto
    """The graph in the precision that was delivered."""
    record: ConversionRecord | None
    """The conversion record of the delivered graph; None in fp32."""


@dataclass(frozen=True)
class Source:
    """The checkpoint that a delivery is compared with."""

    path: Path
    calibrate: Path | None = None
    """Folder of the images that a conversion was measured on."""

    def check(self) -> None:
        """Raise unless the file is a checkpoint that can be exported."""
        if self.metadata.kind == "backbone":
            raise CheckpointError(
                f"{self.path} holds a backbone without classes", "Name the checkpoint that the model was exported from."
            )

    @cached_property
    def sha256(self) -> str:
        """Hash of the checkpoint file."""
        return sha256_of(self.path)

    @cached_property
    def metadata(self) -> Metadata:
        """The description that a graph of this checkpoint carries."""
        return deployed_metadata(read_header(self.path).metadata, self.path)

    def interface_of(self, texts: Mapping[str, str], source: str) -> GraphInterface:
        """The interface that a delivered graph or sidecar states; raises if it is not for this kind of network."""
        metadata, interface = parse_any_description(texts, source)
        if isinstance(metadata, ClassifierMetadata) != isinstance(self.metadata, ClassifierMetadata):
            raise CheckpointError(
                f"{source} describes a {metadata.kind}, and {self.path} holds a {self.metadata.kind}",
                "Name the checkpoint that the model was exported from.",
            )
        return interface

    def rebuilt(self, delivered: onnx.ModelProto, interface: GraphInterface) -> Rebuilt:
        """A fresh export in the precision that the delivered graph states, converted as its record says."""
        exact = self.exact(interface)
        if interface.precision == "fp32":
            return Rebuilt(exact, exact, None)
        try:
            record = read_record(delivered)
            if record is None:
                raise RecordError(f"it does not record its conversion to {interface.precision}", AGAIN)
            return Rebuilt(exact, replay(exact, record), record)
        except (CheckpointError, ConfigError, LookupError, ValueError, AssertionError) as error:
            why = error.message if isinstance(error, RcilError) else first_line(error)
            raise RecordError(f"the conversion cannot be repeated: {why}", AGAIN) from error

    def exact(self, interface: GraphInterface) -> onnx.ModelProto:
        """The fp32 graph with this interface, folded and exported afresh."""
        plain = interface.model_copy(update={"precision": "fp32", "folded": True})
        return exportable_kind(self.metadata).exact_document(self.path, self.metadata, plain)
