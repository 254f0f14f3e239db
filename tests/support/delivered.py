"""A tiny checkpoint after two steps and the ONNX file that was exported from it, as a customer has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from exports import described

from rcil.checkpoint.file import load_for_inference, save
from rcil_export.certificate.certify import certify
from rcil_export.checks.result import Item, Result
from rcil_export.convert import convert, deployed_metadata
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.precision.replay import Converted


@dataclass(frozen=True)
class Delivered:
    """Where both files are, and how the second came from the first."""

    checkpoint: Path
    model: Path
    interface: Interface
    converted: Converted

    def certified(self, change: Callable[[onnx.ModelProto], object] | None = None, **options: object) -> Result:
        """The certificate of the file, or of a changed copy."""
        path = self.model
        if change is not None:
            document = onnx.load(path)
            change(document)
            path = self.model.with_name("changed.onnx")
            path.write_bytes(document.SerializeToString())
        chosen = {"engine": False, "latency": None, "memory": False, "replays": self.converted.repeat, **options}
        return certify(path, self.checkpoint, self.interface, **chosen)


def save_checkpoint(folder: Path, backbone: str = "resnet18", step: int = 2, **changes: object) -> Path:
    """A tiny network with two branches, as a file."""
    model, metadata = described(backbone, step, **changes)
    save(folder / "step.safetensors", model, metadata)
    return folder / "step.safetensors"


def deliver(checkpoint: Path, interface: Interface, **options: Any) -> Delivered:
    """Export a checkpoint as `rcil-export` does, beside it."""
    model, metadata = load_for_inference(checkpoint)
    converted = convert(model, deployed_metadata(metadata, checkpoint), interface, **options)
    path = checkpoint.with_name("model.onnx")
    write_onnx(path, converted.document)
    return Delivered(checkpoint, path, interface, converted)


def by_key(result: Result) -> dict[str, Item]:
    """The items of a result."""
    return {item.key: item for item in result.items}
