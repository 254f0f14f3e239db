"""Networks of other libraries as ONNX, with torch's own exporter; pre- and postprocessing are ours.

The nodes are written again without the stack traces, paths and names that torch stores in them, so that the same
network gives the same bytes everywhere.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from rcil.core.errors import ConfigError, MissingDependencyError, RcilError, first_line
from rcil.model.metadata import Metadata
from rcil.nn.attached.network import AttachedNetwork, layer_paths
from rcil.nn.classifier import IncrementalClassifier
from rcil_export.graph.constants import compute_constants
from rcil_export.graph.graft import graft
from rcil_export.graph.interface import GraphInterface
from rcil_export.graph.nodes import NodeList, constants_of
from rcil_export.graph.preprocessing import write_input
from rcil_export.graph.shapes import InputShape

ROOT = "model."
"""What names of tensors begin with in the graphs of torch.onnx: the attribute of `_Logits`."""
ROUTES = {True: "torch.onnx", False: "own writer"}
"""How a graph was written, for reports: by torch.onnx for attached networks, by our own writer for ours."""


def check_interface(model: AttachedNetwork, interface: GraphInterface) -> None:
    """Raise for graphs that are not written for an attached network."""
    multiple = model.arch.multiple
    if multiple > 1 and not interface.shape.one_size:
        raise ConfigError(
            f"this network needs sides that are multiples of {multiple}, so that its graph is for one size",
            "Give --size HxW; --batch may vary.",
        )


def write_attached(nodes: NodeList, model: AttachedNetwork, metadata: Metadata, interface: GraphInterface) -> str:
    """Write all nodes from the image to the logits [N, classes, H, W] at input size; returns their name."""
    check_interface(model, interface)
    image, scale = write_input(nodes, metadata, interface)
    if scale is not None:
        factor = nodes.constant("inverse_std", np.asarray(scale, np.float32).reshape(1, 3, 1, 1))
        image = nodes.add("Mul", [image, factor], "normalised")
    body = exported_body(model, interface.shape, interface.opset)
    graft(nodes, body, image, "logits", layer_names(body, model))
    return "logits"


def layer_names(body: onnx.ModelProto, model: AttachedNetwork) -> dict[str, str]:
    """Names for the outputs of convs that are units or class rows: those of their layers in `model`.

    Only convs whose kernel and bias are those of the layer get its name, because the exporter may merge others into it.
    """
    constants, layers = constants_of(body), _layer_convs(model)
    found: dict[str, list[str]] = {}
    for node in body.graph.node:
        path, conv = (
            layers.get(node.input[1].removesuffix(".weight"), ("", None)) if node.op_type == "Conv" else ("", None)
        )
        if conv is not None and _has_values_of(node, constants, conv):
            found.setdefault(path, []).append(node.output[0])
    taken = {f"net.{node.op_type}_{index}" for index, node in enumerate(body.graph.node)}
    return {values[0]: path for path, values in found.items() if len(values) == 1 and path not in taken}


def _layer_convs(model: AttachedNetwork) -> dict[str, tuple[str, nn.Conv2d]]:
    """Path and conv of every layer that is a single conv, by what the names of its tensors begin with."""
    found = {}
    for path in layer_paths(model.arch):
        layer = model.get_submodule(path)
        parts = list(layer.groups.named_children()) if isinstance(layer, IncrementalClassifier) else [("", layer)]
        name, conv = (f".groups.{parts[0][0]}", parts[0][1]) if parts[0][0] else parts[0]
        if len(parts) == 1 and isinstance(conv, nn.Conv2d):
            found[f"{ROOT}{path}{name}"] = (path, conv)
    return found


def _has_values_of(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], conv: nn.Conv2d) -> bool:
    """Whether a Conv node has the kernel and bias of a layer; biases of zeros may be left out."""
    if not all(name in constants for name in node.input[1:]):
        return False
    stored = [numpy_helper.to_array(constants[name]) for name in node.input[1:]]
    own = [value.detach().numpy() for value in (conv.weight, conv.bias) if value is not None]
    if len(own) > len(stored) and not own[-1].any():
        own.pop()
    return len(stored) == len(own) and all(map(np.array_equal, stored, own))


class _Logits(nn.Module):
    """The network with one input and one output."""

    def __init__(self, model: AttachedNetwork) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits


def exported_body(model: AttachedNetwork, shape: InputShape, opset: int) -> onnx.ModelProto:
    """What torch.onnx writes for normalised images [N, 3, H, W] of this shape."""
    batch, height, width = shape.usual
    example = torch.zeros(batch, 3, height, width)
    varying = {
        axis: torch.export.Dim(name, min=extent.low, max=extent.high)
        for axis, name, extent in ((0, "batch", shape.batch), (2, "height", shape.height), (3, "width", shape.width))
        if not extent.fixed
    }
    try:
        import onnxscript  # noqa: F401 -- torch's exporter needs it
    except ImportError as error:
        raise MissingDependencyError(
            "exporting a network of another library needs the package onnxscript, which is not installed",
            "Install it with: pip install 'rcil[train]'",
        ) from error
    try:
        with _silently(), torch.no_grad():
            program = torch.onnx.export(
                _Logits(model).eval(),
                (example,),
                dynamo=True,
                dynamic_shapes=(varying,) if varying else None,
                opset_version=opset,
                input_names=["x"],
                output_names=["y"],
                optimize=True,
                verbose=False,
                external_data=False,
            )
        assert program is not None
        body = program.model_proto
    except Exception as error:
        raise RcilError(
            f"torch.onnx cannot export {model.arch.factory}: {type(error).__name__}: {first_line(error)}",
            "Give one --size and --batch." if varying else "Everything but ONNX works with this network.",
        ) from error
    compute_constants(body)
    return body


@contextlib.contextmanager
def _silently() -> Iterator[None]:
    """Without the exporter's own messages, which are about its progress."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
