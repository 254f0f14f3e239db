"""A network as a row of places, each named in the network's own terms, whatever form it is in.

A place is a conv unit (`backbone.stages.1.0.conv1`, with its norm, both branches and its activation, as far as it has
them), the projection, the classifier, or one function call (`add_3`). Unfolded, folded and ONNX forms differ inside a
place and agree on what comes out of it, so places are where two forms are compared.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor, fx

from rcil.core.errors import RcilError
from rcil.core.images import Image
from rcil.inference import as_input
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata
from rcil.nn import Segmenter
from rcil.nn.classifier import IncrementalClassifier
from rcil.nn.units.convnorm import ConvNorm, ConvSum
from rcil_export.checks.artefact import (
    Artefact,
    CheckpointArtefact,
    OnnxArtefact,
    run_session,
)
from rcil_export.graph.interface import INPUT_NAME
from rcil_export.graph.nodes import with_declared_constants
from rcil_export.graph.postprocessing import BY_PIXEL
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.translate import trace, value_name
from rcil_export.runtime.sessions import open_session

Array = NDArray[Any]
CLASSIFIER, FULL_SIZE = "classifier", "interpolate"
"""Places whose channels are classes: the small logits and the logits at the size of the image."""
_CONVERTED = re.compile(r"/.*|_(Quantize|Dequantize)Linear.*|\.(fp16|bf16|fp32|quantised|values)$")
"""Names that conversions to fewer bits give to values of their own; what comes out of a place has its old name."""


@dataclass(frozen=True)
class Value:
    """One operation and what it reads."""

    name: str
    inputs: tuple[str, ...]
    text: str
    """The operation for people."""
    is_output: bool = True
    """Whether it may be what comes out of a place."""


Layer = Callable[[Mapping[str, Array]], Array]
"""What comes out of the others, by place [1, C, H, W] or [N, C, H, W] -> what comes out of this one [N, C, H, W]; N is
the number of equal images that the network takes at once."""


class PlacedNetwork(ABC):
    """A network that runs place by place.

    Args:
        metadata: Names its architecture and its classes.
        values: All operations in the order of execution.
    """

    def __init__(self, metadata: Metadata, values: Sequence[Value]) -> None:
        self.metadata = metadata
        units = unit_paths(metadata.architecture)
        place_of = assign_places(values, units)
        inner = _network_part([place_of[value.name] for value in values], units)
        self.output_of = {place_of[v.name]: v.name for v in values if v.is_output and place_of[v.name] in inner}
        """Place -> name of the value that comes out of it, in the order of execution."""
        self._texts: dict[str, list[str]] = {}
        for value in values:
            self._texts.setdefault(place_of[value.name], []).append(value.text)

    def text(self, place: str) -> str:
        """What a place computes, for people."""
        return " -> ".join(self._texts[place])

    @abstractmethod
    def reads(self, place: str, others: Iterable[str]) -> list[str]:
        """Which of the `others` a place depends on, if they are given to it."""

    @abstractmethod
    def layer(self, place: str, image: Image, others: Iterable[str]) -> Layer:
        """One place of the network, ready to run.

        Args:
            place: Which.
            image: RGB [H, W, 3]; a place that needs none of the others starts from it.
            others: Places whose values are given; what stands between them and the place runs too.
        """


def placed(artefact: Artefact) -> PlacedNetwork:
    """The places of an artefact; an engine does not show them."""
    match artefact:
        case CheckpointArtefact():
            return TorchPlaces(artefact.model, artefact.metadata)
        case OnnxArtefact():
            return OnnxPlaces(artefact)
        case _:
            raise RcilError(
                f"the layers of {artefact.name} cannot be compared: TensorRT fuses them",
                "Compare the ONNX file that the engine was built from.",
            )


def unit_paths(arch: Architecture) -> list[str]:
    """Paths of all conv units, the projection and the classifier, which every form of the network has."""
    with torch.device("meta"):
        plain = Segmenter(arch.replace(rc=None, folded=False, norm="batch"), [["background"]])
    kinds = (ConvNorm, ConvSum, IncrementalClassifier)
    return [name for name, module in plain.named_modules() if isinstance(module, kinds)]


def assign_places(values: Iterable[Value], units: Iterable[str]) -> dict[str, str]:
    """Value -> place. Parts of a unit belong to it, and so does what joins nothing but parts of one unit."""
    known = set(units)
    place_of: dict[str, str] = {}
    for value in values:
        plain = _CONVERTED.sub("", value.name)
        parts = plain.split(".")
        prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        joined = {place_of.get(name, "") for name in value.inputs}
        if (unit := next((prefix for prefix in prefixes if prefix in known), None)) is not None:
            place = unit
        elif len(value.inputs) > 1 and len(joined) == 1 and joined <= known:
            place = joined.pop()
        else:
            place = place_of.get(plain, FULL_SIZE if _is_full_size(plain, place_of) else plain)
        place_of[value.name] = place_of[plain] = place
    return place_of


def _network_part(places: list[str], units: Iterable[str]) -> set[str]:
    """The places from the first unit to the classifier, and the full-size logits.

    What a graph does around them, such as normalising pixels, other forms do in another way.
    """
    known = set(units)
    first = next((at for at, place in enumerate(places) if place in known), 0)
    last = max((at for at, place in enumerate(places) if place == CLASSIFIER), default=len(places))
    return {*places[first : last + 1], FULL_SIZE}


def _is_full_size(name: str, before: Mapping[str, str]) -> bool:
    """`logits` in planes, unless they are only another view of those that lie pixel by pixel."""
    return name == BY_PIXEL or (name == "logits" and BY_PIXEL not in before)


class TorchPlaces(PlacedNetwork):
    """A network in torch, folded or not."""

    def __init__(self, model: Segmenter, metadata: Metadata) -> None:
        self.model = model
        traced = trace(model)
        self._interpreter = fx.Interpreter(traced)
        self._nodes = {value_name(n): n for n in traced.graph.nodes if n.op.startswith("call") and _is_map(n)}
        values = [
            Value(name, tuple(value_name(source) for source in node.all_input_nodes), self._describe(node))
            for name, node in self._nodes.items()
        ]
        super().__init__(metadata, values)

    def _describe(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return " ".join(str(self.model.get_submodule(str(node.target))).split())
        return str(getattr(node.target, "__name__", node.target))

    def reads(self, place: str, others: Iterable[str]) -> list[str]:
        """See `PlacedNetwork.reads`."""
        stops = self._stops(place, others)
        found: dict[str, None] = {}
        seen: set[fx.Node] = set()
        queue = [self._nodes[self.output_of[place]]]
        while queue:
            node = queue.pop()
            if node in stops:
                found[stops[node]] = None
            elif node not in seen:
                seen.add(node)
                queue += node.all_input_nodes
        return list(found)

    def _stops(self, place: str, others: Iterable[str]) -> dict[fx.Node, str]:
        return {self._nodes[self.output_of[other]]: other for other in others if other != place}

    def layer(self, place: str, image: Image, others: Iterable[str]) -> Layer:
        """See `PlacedNetwork.layer`."""
        target, stops = self._nodes[self.output_of[place]], self._stops(place, others)

        @torch.no_grad()
        def run(given: Mapping[str, Array]) -> Array:
            env: dict[fx.Node, Any] = {}

            def value(node: fx.Node) -> Any:
                if node not in env:
                    if node in stops:  # copied, because activations work in place
                        env[node] = torch.from_numpy(np.array(given[stops[node]], np.float32))
                    elif node.op == "placeholder":
                        env[node] = as_input(self.metadata, image)[None]
                    else:
                        args, kwargs = (fx.map_arg(part, value) for part in (node.args, node.kwargs))
                        env[node] = getattr(self._interpreter, node.op)(node.target, args, kwargs)
                return env[node]

            result: Tensor = value(target)
            return result.numpy()

        return run


def _is_map(node: fx.Node) -> bool:
    """Whether a call gives a map, as opposed to the image's size or nothing."""
    return node.target not in (getattr, operator.getitem) and "_assert" not in str(node.target)


class OnnxPlaces(PlacedNetwork):
    """A graph in ONNX Runtime; its nodes run as they are written, without fusions."""

    def __init__(self, artefact: OnnxArtefact) -> None:
        self.artefact = artefact
        self.document = artefact.document
        graph = self.document.graph
        self._made_by = {name: node for node in graph.node for name in node.output}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        values = [
            Value(
                node.output[0],
                tuple(name for name in node.input if name in self._made_by),
                _describe_node(node),
                _CONVERTED.search(node.output[0]) is None,
            )
            for node in graph.node
        ]
        super().__init__(artefact.metadata, values)
        inferred = onnx.shape_inference.infer_shapes(with_declared_constants(self.document)).graph
        self._kinds = {
            v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.output, *inferred.value_info)
        }

    def _batch(self, image: Image) -> Array:
        interface = self.artefact.interface
        return np.stack([image_input(self.metadata, interface, image)] * interface.shape.batch.low)

    def reads(self, place: str, others: Iterable[str]) -> list[str]:
        """See `PlacedNetwork.reads`."""
        stops = self._stops(place, others)
        return [stops[name] for name in self._behind(self.output_of[place], stops.keys())[1] if name in stops]

    def _stops(self, place: str, others: Iterable[str]) -> dict[str, str]:
        return {self.output_of[other]: other for other in others if other != place}

    def layer(self, place: str, image: Image, others: Iterable[str]) -> Layer:
        """See `PlacedNetwork.layer`."""
        target = self.output_of[place]
        stops = self._stops(place, others)
        nodes, reads = self._behind(target, stops.keys())
        graph = helper.make_graph(
            nodes,
            place,
            [
                helper.make_tensor_value_info(name, self._kind(name), None)
                for name in reads
                if name not in self._constants
            ],
            [helper.make_empty_tensor_value_info(target)],
            [self._constants[name] for name in reads if name in self._constants],
        )
        part = helper.make_model(graph, opset_imports=self.document.opset_import, ir_version=self.document.ir_version)
        name = f"{place} of {self.artefact.name}"
        session = open_session(part, exact=True, name=name)

        def run(given: Mapping[str, Array]) -> Array:
            feeds = {
                name: self._batch(image) if name == INPUT_NAME else self._as_stored(name, given[stops[name]])
                for name in reads
                if name not in self._constants
            }
            return _as_nchw(target, run_session(session, feeds, name)[target])

        return run

    def _behind(self, target: str, stops: Iterable[str]) -> tuple[list[onnx.NodeProto], list[str]]:
        """The nodes between `stops` (or image and constants) and `target`, in order, and what they read beyond."""
        stops = set(stops)
        wanted: set[str] = set()
        reads: dict[str, None] = {}
        queue = [target]
        while queue:
            name = queue.pop()
            if name in stops or name not in self._made_by:
                reads[name] = None
            elif name not in wanted:
                wanted.add(name)
                queue += [source for source in self._made_by[name].input if source]
        return [node for node in self.document.graph.node if wanted & set(node.output)], list(reads)

    def _kind(self, name: str) -> int:
        return self._kinds.get(name, TensorProto.FLOAT)

    def _as_stored(self, name: str, values: Array) -> Array:
        """What a place gave for one image or for all, in the layout and type that the graph has there."""
        batch = self.artefact.interface.shape.batch.low // len(values)
        stored = np.moveaxis(values, 1, -1) if name == BY_PIXEL else values
        kind = helper.tensor_dtype_to_np_dtype(self._kind(name))
        return np.ascontiguousarray(np.repeat(stored, batch, axis=0).astype(kind))


def _as_nchw(name: str, values: Array) -> Array:
    return np.moveaxis(values, -1, 1) if name == BY_PIXEL else values


def _describe_node(node: onnx.NodeProto) -> str:
    told = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name in ("dilations", "group", "pads")}
    return f"{node.op_type}({', '.join(f'{key}={value}' for key, value in told.items())})" if told else node.op_type
