"""A network as a list of layers with the same names in every form, so that two forms can be compared.

A layer is a conv unit (`backbone.stages.1.0.conv1`, with its norm, both branches and its activation, as far as it has
them), the projection, the classifier, or one function call (`add_3`). Unfolded, folded and ONNX forms differ inside a
layer and agree on its output.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor, fx, nn

from rcil.core.errors import RcilError
from rcil.core.images import Image
from rcil.inference import as_input
from rcil.model.architecture import Architecture
from rcil.model.attached import AttachedArchitecture
from rcil.model.metadata import AnyArchitecture, Metadata
from rcil.nn import Segmenter
from rcil.nn.attached.attach import SIDES
from rcil.nn.attached.dataflow import Flow, watch
from rcil.nn.attached.network import AttachedNetwork, layer_paths
from rcil.nn.classifier import IncrementalClassifier
from rcil.nn.units.convnorm import ConvNorm, ConvSum
from rcil_export.checks.artefact import Artefact, CheckpointArtefact, OnnxArtefact, run_session
from rcil_export.graph.interface import INPUT_NAME
from rcil_export.graph.nodes import constants_of, with_declared_constants
from rcil_export.graph.postprocessing import BY_PIXEL
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.translate import trace, value_name
from rcil_export.runtime.sessions import open_session

Array = NDArray[Any]
CLASSIFIER, FULL_SIZE = "classifier", "interpolate"
"""Layers whose channels are classes: the small logits and the logits at the size of the image."""
_CONVERTED = re.compile(r"/.*|_(Quantize|Dequantize)Linear.*|\.(fp16|bf16|fp32|quantised|values)$")
"""Suffixes of values that conversions to fewer bits add; the output of a layer keeps its original name."""


@dataclass(frozen=True)
class Value:
    """One operation and its inputs."""

    name: str
    inputs: tuple[str, ...]
    text: str
    """The operation, for people."""
    is_output: bool = True
    """Whether it can be the output of a layer."""


LayerFunction = Callable[[Mapping[str, Array]], Array]
"""Outputs of other layers, [1, C, H, W] or [N, C, H, W] by layer -> the output of this layer [N, C, H, W]. N is the
number of equal images that the network takes at once."""


class LayeredNetwork(ABC):
    """A network that runs layer by layer.

    Args:
        metadata: Names its architecture and its classes.
        values: All operations in the order of execution.
        inputs: Names of the values that every value is computed from; image and constants have no entry.
    """

    def __init__(self, metadata: Metadata, values: Sequence[Value], inputs: Mapping[str, Sequence[str]]) -> None:
        self.metadata = metadata
        self._inputs = inputs
        units = unit_paths(metadata.architecture)
        if isinstance(metadata.architecture, AttachedArchitecture):
            layer_of = {value.name: FULL_SIZE if value.name == "logits" else value.name for value in values}
            compared = {*units, FULL_SIZE}
        else:
            layer_of = assign_layers(values, units)
            compared = _compared_layers([layer_of[value.name] for value in values], units)
        self.output_of = {layer_of[v.name]: v.name for v in values if v.is_output and layer_of[v.name] in compared}
        """Layer -> name of its output value, in the order of execution."""
        self._texts: dict[str, list[str]] = {}
        for value in values:
            self._texts.setdefault(layer_of[value.name], []).append(value.text)

    def text(self, layer: str) -> str:
        """The operations of a layer, for people."""
        return " -> ".join(self._texts[layer])

    def reads(self, layer: str, others: Iterable[str]) -> list[str]:
        """The layers among `others` that a layer depends on directly, if their outputs are given."""
        given = self._given(layer, others)
        return [given[name] for name in self._between(given, self.output_of[layer])[1] if name in given]

    @abstractmethod
    def function(self, layer: str, image: Image, others: Iterable[str]) -> LayerFunction:
        """One layer of the network, ready to run.

        Args:
            layer: Its name.
            image: RGB [H, W, 3], for layers that depend on none of the others.
            others: Layers whose outputs are given; operations between them and the layer run too.
        """

    def _given(self, layer: str, others: Iterable[str]) -> dict[str, str]:
        """Output value -> layer, for all of the others."""
        return {self.output_of[other]: other for other in others if other != layer}

    def _between(self, given: Container[str], target: str) -> tuple[set[str], list[str]]:
        """The values to compute for `target`, and the given values, constants and images that these read."""
        computed: set[str] = set()
        read: dict[str, None] = {}
        queue = [target]
        while queue:
            name = queue.pop()
            if name in given or name not in self._inputs:
                read[name] = None
            elif name not in computed:
                computed.add(name)
                queue += self._inputs[name]
        return computed, list(read)


def layered(artefact: Artefact) -> LayeredNetwork:
    """The layers of an artefact; an engine does not show them."""
    match artefact:
        case CheckpointArtefact():
            if isinstance(artefact.model, AttachedNetwork):
                return AttachedLayers(artefact.model, artefact.metadata)
            assert isinstance(artefact.model, Segmenter)
            return TorchLayers(artefact.model, artefact.metadata)
        case OnnxArtefact():
            return OnnxLayers(artefact)
        case _:
            raise RcilError(
                f"the layers of {artefact.name} cannot be compared: TensorRT fuses them",
                "Compare the ONNX file that the engine was built from.",
            )


def unit_paths(arch: AnyArchitecture) -> list[str]:
    """Paths of all conv units, the projection and the classifier, which every form of the network has."""
    if isinstance(arch, AttachedArchitecture):
        return layer_paths(arch)
    if not isinstance(arch, Architecture):
        raise RcilError("a graph without torch code has no layers with names", "Compare its outputs.")
    with torch.device("meta"):
        plain = Segmenter(arch.replace(rc=None, folded=False, norm="batch"), [["background"]])
    kinds = (ConvNorm, ConvSum, IncrementalClassifier)
    return [name for name, module in plain.named_modules() if isinstance(module, kinds)]


def assign_layers(values: Iterable[Value], units: Iterable[str]) -> dict[str, str]:
    """Value -> layer. Parts of a unit belong to it, and so does a value that joins only parts of one unit."""
    known = set(units)
    layer_of: dict[str, str] = {}
    for value in values:
        plain = _CONVERTED.sub("", value.name)
        parts = plain.split(".")
        prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        joined = {layer_of.get(name, "") for name in value.inputs}
        if (unit := next((prefix for prefix in prefixes if prefix in known), None)) is not None:
            layer = unit
        elif len(value.inputs) > 1 and len(joined) == 1 and joined <= known:
            layer = joined.pop()
        else:
            layer = layer_of.get(plain, FULL_SIZE if _is_full_size(plain, layer_of) else plain)
        layer_of[value.name] = layer_of[plain] = layer
    return layer_of


def _compared_layers(layers: list[str], units: Iterable[str]) -> set[str]:
    """The layers from the first unit to the classifier, and the full-size logits.

    Forms of a network differ in what comes before and after, such as the normalisation of pixels.
    """
    known = set(units)
    first = next((index for index, layer in enumerate(layers) if layer in known), 0)
    last = max((index for index, layer in enumerate(layers) if layer == CLASSIFIER), default=len(layers))
    return {*layers[first : last + 1], FULL_SIZE}


def _is_full_size(name: str, before: Mapping[str, str]) -> bool:
    """`logits` in planes, unless they are transposed from channels-last logits."""
    return name == BY_PIXEL or (name == "logits" and BY_PIXEL not in before)


class TorchLayers(LayeredNetwork):
    """A network in torch, folded or not."""

    def __init__(self, model: Segmenter, metadata: Metadata) -> None:
        self.model = model
        traced = trace(model)
        self._interpreter = fx.Interpreter(traced)
        self._nodes = {value_name(n): n for n in traced.graph.nodes}
        inputs = {
            name: [value_name(source) for source in node.all_input_nodes]
            for name, node in self._nodes.items()
            if node.op != "placeholder"
        }
        values = [
            Value(name, tuple(inputs[name]), self._describe(node))
            for name, node in self._nodes.items()
            if node.op.startswith("call") and _is_map(node)
        ]
        super().__init__(metadata, values, inputs)

    def _describe(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return " ".join(str(self.model.get_submodule(str(node.target))).split())
        return str(getattr(node.target, "__name__", node.target))

    def function(self, layer: str, image: Image, others: Iterable[str]) -> LayerFunction:
        """See `LayeredNetwork.function`."""
        target, given = self._nodes[self.output_of[layer]], self._given(layer, others)

        @torch.no_grad()
        def run(outputs: Mapping[str, Array]) -> Array:
            known: dict[fx.Node, Any] = {}

            def value(node: fx.Node) -> Any:
                if node not in known:
                    name = value_name(node)
                    if name in given:  # copied, because activations modify their input
                        known[node] = torch.from_numpy(np.array(outputs[given[name]], np.float32))
                    elif node.op == "placeholder":
                        known[node] = as_input(self.metadata, image)[None]
                    else:
                        args, kwargs = (fx.map_arg(part, value) for part in (node.args, node.kwargs))
                        known[node] = getattr(self._interpreter, node.op)(node.target, args, kwargs)
                return known[node]

            result: Tensor = value(target)
            return result.numpy()

        return run


def _is_map(node: fx.Node) -> bool:
    """Whether a call returns a map, as opposed to the size of the image or nothing."""
    return node.target not in (getattr, operator.getitem) and "_assert" not in str(node.target)


class AttachedLayers(LayeredNetwork):
    """A network of another library in torch, folded or not.

    Its code is not traced but watched in one pass. A layer runs with the rest of the network, in which the outputs of
    the other layers are replaced by the given ones.
    """

    def __init__(self, model: AttachedNetwork, metadata: Metadata) -> None:
        self.model = model
        units = set(unit_paths(model.arch))
        flow = watch_network(model)
        calls = sorted((call for call in flow.calls if call.name in units), key=lambda call: call.first)
        made = {id(call.output): call.name for call in calls}
        sources = {call.name: _sources(flow, call.inputs, made) for call in calls} | {
            FULL_SIZE: _sources(flow, (flow.output,), made)
        }
        texts = {call.name: " ".join(str(call.module).split()) for call in calls} | {FULL_SIZE: "the logits"}
        values = [Value("logits" if name == FULL_SIZE else name, (), text) for name, text in texts.items()]
        super().__init__(metadata, values, {"logits" if n == FULL_SIZE else n: sources[n] for n in texts})

    def function(self, layer: str, image: Image, others: Iterable[str]) -> LayerFunction:
        """See `LayeredNetwork.function`."""
        given = self._given(layer, others)
        read = [name for name in self._between(given, self.output_of[layer])[1] if name in given]

        @torch.no_grad()
        def run(outputs: Mapping[str, Array]) -> Array:
            with ExitStack() as hooks:

                def hook(name: str, function: Callable[..., Any]) -> None:
                    hooks.callback(self.model.get_submodule(name).register_forward_hook(function).remove)

                for name in read:  # copied, because activations modify their input
                    value = torch.from_numpy(np.array(outputs[given[name]], np.float32))
                    hook(name, lambda module, inputs, output, value=value: value)
                if layer != FULL_SIZE:
                    hook(layer, _stop)
                try:
                    result = self.model(as_input(self.metadata, image)[None])
                except _Reached as reached:
                    result = reached.output
            return np.asarray(result.numpy())

        return run


class _Reached(BaseException):  # the network turns other exceptions into errors of its own
    """A layer has run, and the rest of the network is not needed."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


def _stop(module: nn.Module, inputs: Any, output: Tensor) -> None:
    raise _Reached(output.clone())


def watch_network(model: AttachedNetwork) -> Flow:
    """One pass of a network in evaluation mode, at the first size that it accepts."""
    for side in SIDES:
        try:
            return watch(model.eval(), torch.zeros(1, 3, side, side))
        except RcilError:
            if side == SIDES[-1]:
                raise
    raise AssertionError


def _sources(flow: Flow, values: Iterable[Tensor], made: Mapping[int, str]) -> list[str]:
    """The layers that some values are computed from directly; `made` names the layer of an output by its id."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if id(value) in made:
            found[made[id(value)]] = None
        elif id(value) not in seen:
            seen.add(id(value))
            pending += [source for index in flow.makers[id(value)] for source in flow.operations[index].inputs]
    return list(found)


class OnnxLayers(LayeredNetwork):
    """A graph in ONNX Runtime; its nodes run as they are written, without fusions."""

    def __init__(self, artefact: OnnxArtefact) -> None:
        self.artefact = artefact
        self.document = artefact.document
        graph = self.document.graph
        inputs = {name: [i for i in node.input if i] for node in graph.node for name in node.output}
        self._constants = constants_of(self.document)
        values = [
            Value(
                node.output[0],
                tuple(name for name in node.input if name in inputs),
                _describe_node(node),
                _CONVERTED.search(node.output[0]) is None,
            )
            for node in graph.node
        ]
        super().__init__(artefact.metadata, values, inputs)
        inferred = onnx.shape_inference.infer_shapes(with_declared_constants(self.document)).graph
        self._kinds = {
            v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.output, *inferred.value_info)
        }

    def function(self, layer: str, image: Image, others: Iterable[str]) -> LayerFunction:
        """See `LayeredNetwork.function`."""
        target, given = self.output_of[layer], self._given(layer, others)
        computed, read = self._between(given, target)
        fed = [name for name in read if name not in self._constants]
        graph = helper.make_graph(
            [node for node in self.document.graph.node if computed & set(node.output)],
            layer,
            [helper.make_tensor_value_info(name, self._kind(name), None) for name in fed],
            [helper.make_empty_tensor_value_info(target)],
            [self._constants[name] for name in read if name in self._constants],
        )
        part = helper.make_model(graph, opset_imports=self.document.opset_import, ir_version=self.document.ir_version)
        title = f"{layer} of {self.artefact.name}"
        session = open_session(part, exact=True, name=title)

        def run(outputs: Mapping[str, Array]) -> Array:
            feeds = {
                name: self._batch(image) if name == INPUT_NAME else self._as_stored(name, outputs[given[name]])
                for name in fed
            }
            result = run_session(session, feeds, title)[target]
            return np.moveaxis(result, -1, 1) if target == BY_PIXEL else result

        return run

    def _batch(self, image: Image) -> Array:
        interface = self.artefact.interface
        return np.stack([image_input(self.metadata, interface, image)] * interface.shape.batch.low)

    def _kind(self, name: str) -> int:
        return self._kinds.get(name, TensorProto.FLOAT)

    def _as_stored(self, name: str, values: Array) -> Array:
        """The output of a layer for one image or for all, in the layout and type of the graph's value."""
        batch = self.artefact.interface.shape.batch.low // len(values)
        stored = np.moveaxis(values, 1, -1) if name == BY_PIXEL else values
        kind = helper.tensor_dtype_to_np_dtype(self._kind(name))
        return np.ascontiguousarray(np.repeat(stored, batch, axis=0).astype(kind))


def _describe_node(node: onnx.NodeProto) -> str:
    shown = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name in ("dilations", "group", "pads")}
    return f"{node.op_type}({', '.join(f'{key}={value}' for key, value in shown.items())})" if shown else node.op_type
