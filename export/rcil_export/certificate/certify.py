"""The zero-cost certificate: a delivered file is a plain network, node for node, weight for weight, byte for byte."""

from __future__ import annotations

import filecmp
import hashlib
import itertools
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from rcil.core.errors import CheckpointError, ConfigError, MissingDependencyError, RcilError
from rcil.core.files import sha256_of
from rcil.model.attached import AttachedArchitecture
from rcil.model.header import read_header
from rcil_export.certificate.counts import Counts, deployed_counts
from rcil_export.certificate.difference import first_difference, weight_differences, with_weights_of
from rcil_export.certificate.graph import canonical, parameters_and_macs, with_fixed_size
from rcil_export.certificate.latency import latency_item
from rcil_export.certificate.memory import memory_item
from rcil_export.certificate.twin import twin_document
from rcil_export.checks.result import Item, Result
from rcil_export.convert import deployed_metadata
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.errors import EngineError
from rcil_export.graph.interface import GraphInterface, Precision
from rcil_export.graph.preprocessing import usual_input_dims
from rcil_export.precision.replay import Conversion
from rcil_export.resources import part
from rcil_export.timing.interleaved import LatencyOptions

TITLE = "No extra cost over a plain network"
GRAPH, WEIGHTS = "Same graph as the plain network", "Same weights as the checkpoint's, computed a second time"
SAME_NODES, SAME_NUMBERS = "the same node for node", "equal but for the last bit"
MAX_LISTED = 3
"""Layers with other weights that a line lists."""
MAX_IN_DOCUMENT = 50
"""Layers with other weights that the JSON document lists."""
ENGINE_GPUS = ("sm86",)
"""Compute capabilities to build for, where the user names none."""


def certify(
    delivered: Path,
    checkpoint: Path,
    interface: GraphInterface,
    *,
    engine: bool,
    latency: LatencyOptions | None,
    memory: bool = True,
    gpus: tuple[str, ...] = ENGINE_GPUS,
    replays: Mapping[Precision, Conversion] | None = None,
) -> Result:
    """Whether a delivered ONNX file is, node for node and weight for weight, a network that never had RC blocks.

    The file is read back from the disk. It is compared with a plain network that is built without `fold`: the
    checkpoint's architecture with weights computed from the checkpoint's raw tensors, in the same precision. For a
    network of another library, that is the network as its own factory builds it, before attaching. Axes that
    vary are compared as such; engine, latency, memory and multiply-accumulates are those of the usual size.

    Args:
        delivered: The ONNX file, of a segmenter or of a classifier of whole images.
        checkpoint: The checkpoint it was exported from.
        interface: The interface that was asked for.
        engine: Build TensorRT-RTX engines of both graphs and compare their bytes.
        latency: How to time both files; None leaves it out.
        memory: Measure the peak memory of both files.
        gpus: Compute capabilities to build for.
        replays: The conversion of the export, by precision, for another fp32 graph with the same names.
    """
    sha256, own = _read(delivered)
    sha256["checkpoint"] = sha256_of(checkpoint)
    stored = read_header(checkpoint).metadata
    shape = usual_input_dims(interface)
    attached = isinstance(stored.architecture, AttachedArchitecture)
    items: list[Item] = []
    if not attached:
        with part("counts"):
            items = cost_items(own, deployed_counts(stored, interface.shape.usual[1:]), shape)
    replay = (replays or {}).get(interface.precision)
    if interface.precision != "fp32" and replay is None:
        return Result("certificate", TITLE, (*_not_replayed(interface.precision), *items), sha256)
    with part("twin"):
        twin = twin_document(checkpoint, deployed_metadata(stored, checkpoint), interface)
        twin = twin if replay is None else replay(twin)
    if attached:
        with part("counts"):
            items = cost_items(own, counts_of_twin(twin, interface), shape)
    with part("graph"):
        structure = graph_item(own, twin)
    with part("weights"):
        items = [structure, *([weights_item(own, twin)] if structure.passed else []), *items]
    with tempfile.TemporaryDirectory(prefix="rcil-certificate-") as folder:
        plain = Path(folder) / "plain.onnx"
        if latency is not None or memory:
            plain.write_bytes(twin.SerializeToString())
        files = _canonical_files(own, twin, structure, shape, Path(folder)) if engine else None
        del own, twin  # the next checks need as much memory again
        if files is not None:
            with part("engine"):
                items.append(engine_item(*files, interface.precision, gpus))
        if latency is not None:
            with part("latency"):
                items.append(latency_item(delivered, plain, shape, latency))
        if memory:
            with part("memory"):
                items.append(memory_item(delivered, plain, shape, 1 if latency is None else latency.threads))
    return Result("certificate", TITLE, tuple(items), sha256)


def _read(path: Path) -> tuple[dict[str, str], onnx.ModelProto]:
    """The hash of a file and the graph in it, from the same bytes."""
    content = path.read_bytes()
    try:
        return {"model": hashlib.sha256(content).hexdigest()}, onnx.ModelProto.FromString(content)
    except DecodeError as error:
        raise CheckpointError(f"{path} is not an ONNX file, or damaged", "Export it again with rcil-export.") from error


def graph_item(own: onnx.ModelProto, twin: onnx.ModelProto) -> Item:
    """Whether the delivered graph is isomorphic to the twin's."""
    difference, nodes = first_difference(own, twin), len(own.graph.node)
    return Item(
        "graph",
        GRAPH,
        difference is None,
        difference or f"{nodes} nodes, all with the same op, attributes, settings, wiring, types and shapes",
        SAME_NODES,
        {"nodes": nodes, "plain_nodes": len(twin.graph.node)},
        kind="proved",
    )


def weights_item(own: onnx.ModelProto, twin: onnx.ModelProto) -> Item:
    """Whether every number of the delivered graph follows from the checkpoint; both graphs must be isomorphic."""
    found = list(itertools.islice(weight_differences(own, twin), MAX_IN_DOCUMENT))
    numbers = sum(len(tensor.dims) > 0 for tensor in own.graph.initializer)
    text = "; ".join(map(str, found[:MAX_LISTED])) + ("; and more" if len(found) > MAX_LISTED else "")
    return Item(
        "weights",
        WEIGHTS,
        not found,
        text or f"{numbers} weights and biases, each within one rounding of its format",
        SAME_NUMBERS,
        {"differences": [difference.as_document() for difference in found]},
        kind="proved",
    )


def counts_of_twin(twin: onnx.ModelProto, interface: GraphInterface) -> Counts:
    """Parameters and multiply-accumulates of a network of another library, for which there is no closed form."""
    try:
        parameters, macs = parameters_and_macs(twin, usual_input_dims(interface))
    except RcilError as error:
        raise ConfigError(error.message, "Give one --size; this network computes sizes in its graph.") from error
    return Counts(parameters, macs, interface.shape.usual[1:])


def cost_items(own: onnx.ModelProto, expected: Counts, shape: tuple[int, ...]) -> list[Item]:
    """Parameters and multiply-accumulates: counted in the delivered graph, and calculated from the architecture."""
    titles = {"parameters": "Parameters", "macs": "Multiply-accumulates at {}x{}".format(*expected.size)}
    wanted = {"parameters": expected.parameters, "macs": expected.macs}
    try:
        counted = dict(zip(titles, parameters_and_macs(own, shape), strict=True))
    except (RcilError, onnx.shape_inference.InferenceError, KeyError, IndexError) as error:
        why = error.message if isinstance(error, RcilError) else "the graph is not valid ONNX"
        return [
            Item(key, title, False, f"not counted: {why}", f"exactly {wanted[key]:,}") for key, title in titles.items()
        ]
    return [
        Item(
            key,
            title,
            counted[key] == wanted[key],
            f"{counted[key]:,}",
            f"exactly {wanted[key]:,}",
            {"delivered": counted[key], "closed_form": wanted[key]},
            kind="proved",
        )
        for key, title in titles.items()
    ]


def _canonical_files(
    own: onnx.ModelProto, twin: onnx.ModelProto, structure: Item, shape: tuple[int, ...], folder: Path
) -> tuple[Path, Path]:
    """Both graphs at the usual size; the twin gets the delivered weights, which are compared separately."""
    files = folder / "delivered.canonical.onnx", folder / "plain.canonical.onnx"
    _write_at_size(files[0], canonical(own), shape)
    _write_at_size(files[1], with_weights_of(twin, own) if structure.passed else canonical(twin), shape)
    return files


def _write_at_size(path: Path, document: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    path.write_bytes(with_fixed_size(document, shape).SerializeToString(deterministic=True))


def _not_replayed(precision: Precision) -> list[Item]:
    why = f"not proved: how {precision} was chosen is not on record, so the conversion cannot be repeated"
    return [Item("graph", GRAPH, None, why, SAME_NODES), Item("weights", WEIGHTS, None, why, SAME_NUMBERS)]


def engine_item(
    own: Path, plain: Path, precision: Precision, gpus: tuple[str, ...], *, build_both: bool = False
) -> Item:
    """Whether TensorRT-RTX builds the same bytes from both.

    The builder is deterministic, so if both files have the same bytes, a single build is enough.

    Args:
        own: The delivered graph in canonical form, because engines contain the names of nodes.
        plain: The twin's graph with the same weights, also in canonical form.
        precision: Precision of both graphs.
        gpus: Compute capabilities to build for.
        build_both: Build twice even if the files are equal, to test the builder.
    """
    key, title, required = f"engine_{precision}", f"Same TensorRT-RTX engine in {precision}", "the same bytes"
    options = EngineOptions(precision=precision, flavour="rtx", gpus=gpus)
    with tempfile.TemporaryDirectory(prefix="rcil-certificate-") as folder:
        try:
            first = _built(own, Path(folder) / "built.engine", options)
            one_input = not build_both and filecmp.cmp(own, plain, shallow=False)
            second = first if one_input else _built(plain, Path(folder) / "built.engine", options)
        except (MissingDependencyError, ConfigError) as error:  # not installed, or unknown GPUs
            return Item(key, title, None, f"not built: {error.message}", required, {"remedy": error.hint})
        except EngineError as error:
            return Item(key, title, False, f"not built: {error.message}", required, {"remedy": error.hint})
    same = first["sha256"] == second["sha256"]
    how = ""
    if not same:
        how = f"; the plain network's: {second['bytes']:,} bytes, {second['sha256'][:12]}"
    elif one_input:
        how = f"; both canonical graphs are the same bytes, sha256 {first['onnx_sha256'][:12]}, and were built once"
    return Item(
        key,
        title,
        same,
        f"{first['bytes']:,} bytes for {', '.join(gpus)}, sha256 {first['sha256'][:12]}{how}",
        required,
        {"gpus": list(gpus), "delivered": first, "plain": second, "same_input": one_input},
        kind="proved",
    )


def _built(source: Path, target: Path, options: EngineOptions) -> dict[str, Any]:
    start = time.perf_counter()
    sidecar = build_engine(source, target, options)
    return {
        "sha256": sidecar.engine_sha256,
        "bytes": target.stat().st_size,
        "onnx_sha256": sidecar.onnx_sha256,
        "version": sidecar.version,
        "seconds": round(time.perf_counter() - start, 2),
    }
