"""Networks of other libraries as ONNX, with torch's own exporter; pre- and postprocessing are ours.

The nodes are written again without the stack traces, paths and names that torch stores in them, so that the same
network gives the same bytes everywhere.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError, MissingDependencyError, RcilError, first_line
from rcil.model.metadata import Metadata
from rcil.nn.attached.network import AttachedNetwork
from rcil_export.graph.constants import compute_constants
from rcil_export.graph.graft import graft
from rcil_export.graph.interface import GraphInterface
from rcil_export.graph.nodes import NodeList
from rcil_export.graph.preprocessing import write_input
from rcil_export.graph.shapes import InputShape

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
    graft(nodes, body, image, "logits")
    return "logits"


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
