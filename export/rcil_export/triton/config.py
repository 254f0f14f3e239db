"""The text of a Triton `config.pbtxt`. No file is read or written here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcil.core.errors import CheckpointError
from rcil.model.header import METADATA_KEY
from rcil_export.graph.interface import INTERFACE_KEY, Precision
from rcil_export.graph.shapes import InputShape
from rcil_export.triton.serving import Serving, serving_text
from rcil_export.triton.step_file import Backend, Signature, Tensor

MODEL_FILES: dict[Backend, str] = {"onnxruntime": "model.onnx", "tensorrt": "model.plan"}
LABELS = "labels.txt"
"""For people and clients. The configuration does not name this file: Triton applies labels to classifications only."""
SERVED_VERSIONS = 2
"""The newest step and the one before it: clients that ask for the old version by number have time to move."""
PARAMETER = "rcil."
"""Key of the parameter that describes a version, followed by its number. Clients read it from the server."""


@dataclass(frozen=True)
class Queue:
    """How long requests wait, and when Triton rejects them.

    Args:
        max_delay_ms: How long the first request of a batch waits for others.
        max_waiting: Number of requests that may wait; the next one is rejected at once.
        timeout_ms: A request that waited this long is rejected. A client may ask for less.
    """

    max_delay_ms: float = 1.0
    max_waiting: int = 64
    timeout_ms: float = 2000.0


def config_text(
    name: str,
    signature: Signature,
    shape: InputShape,
    *,
    backend: Backend,
    queue: Queue,
    serving: Serving | None = None,
    precision: Precision = "fp32",
    descriptions: Mapping[int, str] | None = None,
) -> str:
    """The text of the whole file.

    A model with a free batch is served with Triton's batch dimension, which `dims` leave out: `-1, -1, 3` and `-1, -1`
    where height and width are free too. A model with a fixed batch has `max_batch_size: 0` and complete `dims`. Clients
    send [N, H, W, 3] in both cases. Fixed sizes are written as numbers: Triton's backends refuse a `-1` where
    the model has a number.

    Args:
        name: Name of the model and its folder.
        signature: Tensors of every version.
        shape: The largest batch, and the usual image, which every version segments before it takes requests.
        backend: Triton's backend.
        queue: The queue in front of the model.
        serving: How Triton runs it.
        precision: Precision of the model, which the TensorRT accelerator keeps.
        descriptions: Description of each version, from `description_text`.
    """
    batched = not shape.batch.fixed
    skipped = 1 if batched else 0
    warm_up = (*shape.usual, 3)[skipped:]
    outputs = ",\n".join(_tensor(tensor, skipped) for tensor in signature.outputs)
    more = serving_text(serving or Serving(), precision)
    return f"""\
# Written by `rcil-export --triton`, anew with every version.
name: "{name}"
backend: "{backend}"
default_model_filename: "{MODEL_FILES[backend]}"
max_batch_size: {shape.batch.high if batched else 0}
input [
{_tensor(signature.image, skipped)}
]
output [
{outputs}
]
version_policy {{ latest {{ num_versions: {SERVED_VERSIONS} }} }}
dynamic_batching {{
  max_queue_delay_microseconds: {round(queue.max_delay_ms * 1000)}
  default_queue_policy {{
    timeout_action: REJECT
    default_timeout_microseconds: {round(queue.timeout_ms * 1000)}
    allow_timeout_override: true
    max_queue_size: {queue.max_waiting}
  }}
}}
model_warmup [
  {{
    name: "black image"
    batch_size: {shape.batch.usual if batched else 1}
    inputs {{
      key: "{signature.image.name}"
      value {{ data_type: {signature.image.dtype.value} dims: {_dims(warm_up)} zero_data: true }}
    }}
  }}
]
{more}{_parameters(descriptions or {})}"""


def description_text(metadata: Mapping[str, Any], interface: Mapping[str, Any], sha256: str) -> str:
    """What a client must know about a version, as JSON in ASCII; see `described_texts`.

    Args:
        metadata: JSON-ready `Metadata`.
        interface: JSON-ready `Interface`.
        sha256: Hash of the model file.
    """
    document = {"metadata": metadata, "interface": interface, "sha256": sha256}
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def described_texts(text: str) -> dict[str, str]:
    """The texts that `parse_description` takes, and `sha256`, from a `description_text`."""
    try:
        document = json.loads(text)
        parts = {METADATA_KEY: document["metadata"], INTERFACE_KEY: document["interface"]}
        return {key: json.dumps(part) for key, part in parts.items()} | {"sha256": str(document["sha256"])}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError("the description of the model on the server is damaged", "Publish it again.") from error


def _parameters(descriptions: Mapping[int, str]) -> str:
    """The descriptions as a map of parameters."""
    if not descriptions:
        return ""
    lines = [
        f'  {{ key: "{PARAMETER}{step}" value {{ string_value: {_quoted(text)} }} }}'
        for step, text in sorted(descriptions.items())
    ]
    return "parameters [\n" + ",\n".join(lines) + "\n]\n"


def _quoted(text: str) -> str:
    """A string of protobuf's text format, from ASCII without control characters."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tensor(tensor: Tensor, skipped: int) -> str:
    return f'  {{ name: "{tensor.name}" data_type: {tensor.dtype.value} dims: {_dims(tensor.shape[skipped:])} }}'


def _dims(sizes: Sequence[int | None]) -> str:
    return f"[ {', '.join('-1' if size is None else str(size) for size in sizes)} ]"
