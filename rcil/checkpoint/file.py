"""Saving and loading of checkpoints: one safetensors file, no pickle, class rows matched by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rcil.core.errors import CheckpointError
from rcil.core.files import replacing
from rcil.core.log import log
from rcil.model.architecture import Architecture, NormKind
from rcil.model.header import METADATA_KEY, Header, read_header
from rcil.model.metadata import CLASSIFIER_HINT, AnyArchitecture, CostInfo, Metadata
from rcil.nn.architectures.efficientnet_lite import NORM_EPS
from rcil.nn.build import build_any, build_form, plain_twin
from rcil.nn.cost import cost
from rcil.nn.fold import fold
from rcil.nn.network import ROWS, Network
from rcil.nn.segmenter import Segmenter, single_branch

RESTORE = "Restore or import it again."
AGAIN = "Import or save it again."
T = TypeVar("T")
Shapes = Mapping[str, Tensor] | Mapping[str, tuple[int, ...]]


def save(path: Path, model: Network, metadata: Metadata, *, half: bool = False) -> Metadata:
    """Write `model` and its metadata; returns the stored metadata, which includes architecture and cost.

    The class table must name the rows of the classifier in order. The file is written atomically.

    Args:
        path: The file to write.
        model: The network.
        metadata: Its description.
        half: Store weights in fp16, for a file of half the size that loads as a float32 network. Biases and norms stay
            float32: variances can lie outside the range of fp16.
    """
    names = [c.name for c in metadata.classes]
    if names != list(model.names):
        raise CheckpointError(
            f"the class table names {names}, the classifier's rows are {list(model.names)}",
            "Describe the classes in the order of the rows.",
        )
    stored = metadata.model_copy(update={"architecture": model.arch, "cost": _cost_of(model)})
    tensors = model.tensors()
    if half:
        tensors = {key: value.half() if value.ndim > 1 else value for key, value in tensors.items()}
    write_tensors(path, tensors, stored)
    return stored


def save_backbone(path: Path, tensors: dict[str, Tensor], metadata: Metadata) -> None:
    """Write pretrained backbone weights under the keys of a single-branch `Segmenter.backbone`."""
    write_tensors(path, {f"backbone.{key}": value for key, value in tensors.items()}, metadata)


def load(path: Path, *, norm: str | None = None) -> tuple[Network, Metadata]:
    """The model of a checkpoint, in evaluation mode, and its metadata.

    Args:
        path: A file that `save` wrote.
        norm: Use `abs` for a model stored with `inplace` or the other way round; both compute the same.
    """
    header = read_header(path)
    metadata = header.metadata
    if metadata.kind == "classifier":
        raise CheckpointError(f"{path} holds a classifier of whole images, not a segmenter", CLASSIFIER_HINT)
    if metadata.kind != "segmenter":
        raise CheckpointError(
            f"{path} holds a pretrained backbone, not a segmenter", "Give it as the start of a step-0 training."
        )
    arch = metadata.architecture if norm is None else _with_norm(metadata.architecture, norm)
    _check_network(header, path)
    model = build_any(arch, metadata.names_by_step)
    load_into(model, path)
    return model.eval(), metadata


def load_for_inference(path: Path) -> tuple[Network, Metadata]:
    """`load`, with `abs` norms in place of inplace-ABN, which is equal and only saves memory in training."""
    stored = read_header(path).metadata.architecture.norm
    return load(path, norm="abs" if stored == "inplace" else None)


def load_into(model: Network, path: Path) -> None:
    """Load the tensors of `path` into `model`; each class row goes to the row of the same name.

    The architectures must agree, and the file must have every class of the model and no other.
    """
    metadata = read_header(path).metadata
    tensors = read_tensors(path)
    _check_architecture(model, metadata.architecture, path)
    order = _row_order(list(model.names), [c.name for c in metadata.classes], path)
    expected = model.tensors()
    check_tensors(_body_of(expected), _body_of(tensors), path)
    if any(key not in tensors or tensors[key].shape != expected[key].shape for key in ROWS if key in expected):
        raise CheckpointError(f"{path} has no classifier row for each of its classes", RESTORE)
    model.load_tensors(tensors, order)


@torch.no_grad()
def load_backbone(model: Segmenter, path: Path) -> Metadata:
    """Start `model`'s backbone from pretrained weights; both branches of every RC block get the same values."""
    metadata = read_header(path).metadata
    stored, mine = metadata.architecture, model.arch
    if not isinstance(stored, Architecture):
        raise CheckpointError(f"{path} holds an attached network, not a backbone", "Give a file of `rcil import`.")
    differing = _differences(*(arch.model_dump(include={"backbone", "blocks", "width"}) for arch in (mine, stored)))
    if differing:
        raise CheckpointError(
            f"{path} has another backbone ({differing})", "Choose the backbone that the file was made for."
        )
    if mine.folded or (mine.rc is not None and "merged" in (mine.rc.old, mine.rc.new)):
        raise CheckpointError("pretrained weights are for step 0", "Later steps start from the step before.")
    body = {key: value for key, value in read_tensors(path).items() if key.startswith("backbone.")}
    single = convert_norms(body, stored.norm, mine.norm, eps=norm_eps(stored))
    mine_all = {f"backbone.{key}": value for key, value in model.backbone.state_dict().items()}
    wanted = {key: value for key, value in mine_all.items() if not key.endswith("num_batches_tracked")}
    tensors = {key: single[source] for key in wanted if (source := single_branch(key)) in single}
    check_tensors(wanted, tensors, path)
    model.load_state_dict(tensors, strict=False)
    return metadata


def _check_network(header: Header, path: Path) -> None:
    """Compare tensor shapes with the described network before memory is allocated for it."""
    if isinstance(header.metadata.architecture, Architecture):  # others are built by their own factories
        expected = build_form(header.metadata.architecture, header.metadata.names_by_step).tensors()
        check_tensors(_body_of(expected), _body_of(header.shapes), path)


def _with_norm(arch: AnyArchitecture, norm: str) -> AnyArchitecture:
    if norm != arch.norm and {norm, arch.norm} != {"abs", "inplace"}:
        raise CheckpointError(
            f"a model stored with norm '{arch.norm}' cannot be loaded with norm '{norm}'",
            "Only 'abs' and 'inplace' have the same arithmetic.",
        )
    return arch.replace(norm=norm)


def _body_of(tensors: Mapping[str, T]) -> dict[str, T]:
    """Everything but the classifier of one of our own networks."""
    return {key: value for key, value in tensors.items() if key not in ROWS}


def _cost_of(model: Network) -> CostInfo:
    """The cost depends on architecture and classes only, and a run saves many networks of the same form."""
    form = model.arch.model_dump_json(), model.rows.steps
    if form not in _COSTS:
        if isinstance(model.arch, Architecture):
            with torch.device("meta"):
                twin = plain_twin(model)
        else:  # cannot be built from its description alone without running code
            twin = fold(model)[0]
        mine, folded = cost(model), cost(twin)
        _COSTS[form] = CostInfo(
            size=mine.size, macs=mine.macs, folded_parameters=folded.parameters, folded_macs=folded.macs
        )
    return _COSTS[form]


_COSTS: dict[tuple[str, tuple[tuple[str, ...], ...]], CostInfo] = {}


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: Metadata) -> None:
    """Write one safetensors file with its metadata atomically; the same content gives the same bytes.

    The metadata is a single entry because safetensors writes several entries in an order that varies by process.
    """
    packed = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    with replacing(path) as part:
        try:
            save_file(packed, part, metadata={METADATA_KEY: metadata.checkpoint_json()})
        except SafetensorError as error:  # safetensors reports a full disk like this
            raise CheckpointError(f"cannot write {path}: {error}", "Check free space and permissions.") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name."""
    log.info("read %s", path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"cannot read the tensors of {path}: {error}", "Restore the file.") from error


def _check_architecture(model: Network, stored: AnyArchitecture, path: Path) -> None:
    differing = _differences(_essence(model.arch), _essence(stored))
    if differing:
        raise CheckpointError(
            f"{path} has another architecture ({differing})", "Build the model from the file's metadata."
        )


def _differences(mine: Mapping[str, object], theirs: Mapping[str, object]) -> str:
    """The differences between two networks as text; empty if there are none."""
    differing = [key for key in mine if mine[key] != theirs.get(key)]
    return ", ".join(f"{key}: {theirs.get(key)!r} in the file, {mine[key]!r} in the model" for key in differing)


def _essence(arch: AnyArchitecture) -> dict[str, object]:
    """The fields that tensors depend on: not the pooling window, and `abs` and inplace-ABN are the same."""
    fields = arch.model_dump(exclude={"pool_window"})
    return {**fields, "norm": "abs" if arch.norm == "inplace" else arch.norm}


def _row_order(wanted: list[str], present: list[str], path: Path) -> list[int]:
    """The row in the file of each wanted class."""
    missing, extra = sorted(set(wanted) - set(present)), sorted(set(present) - set(wanted))
    if missing or extra:
        parts = [f"it lacks {missing}"] * bool(missing) + [f"it also has {extra}"] * bool(extra)
        raise CheckpointError(
            f"the classes of {path} differ from the model's: {'; '.join(parts)}", "Use a model with the same classes."
        )
    return [present.index(name) for name in wanted]


def check_tensors(expected: Shapes, present: Shapes, path: Path, hint: str = AGAIN) -> None:
    """Raise unless the tensors of `path` have the names and shapes that the network expects.

    Args:
        expected: Tensors of the network, or their shapes, by name.
        present: Tensors of the file, or their shapes, by name.
        path: The file, for the error message.
        hint: The remedy, for the error message.
    """
    wanted, found = ({key: tuple(getattr(v, "shape", v)) for key, v in named.items()} for named in (expected, present))
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    wrong = [key for key in wanted.keys() & found.keys() if wanted[key] != found[key]]
    if missing or extra or wrong:
        problems = (("missing", missing), ("unexpected", extra), ("misshapen", sorted(wrong)))
        listed = [f"{what} {keys[0]} ({len(keys)} in all)" for what, keys in problems if keys]
        raise CheckpointError(f"{path} does not fit its architecture: {', '.join(listed)}", hint)


def norm_eps(arch: Architecture) -> float:
    """The eps of the backbone's norms."""
    return NORM_EPS if arch.lite else 1e-5


def convert_norms(tensors: dict[str, Tensor], source: NormKind, target: NormKind, *, eps: float) -> dict[str, Tensor]:
    """A copy of a state dict whose norms compute under `target` what they computed under `source`.

    To BatchNorm, gamma becomes |gamma| + eps. To inplace-ABN, a negative scale is not possible; there the channel is
    negated in the conv before the norm instead, with its running mean. Scales below eps become eps, the smallest that
    inplace-ABN has.
    """
    if (source == "batch") == (target == "batch"):
        return dict(tensors)
    result = dict(tensors)
    for key in [k for k in tensors if k.endswith(".norm.weight")]:
        gamma, base = tensors[key], key.removesuffix("norm.weight")
        if target == "batch":
            result[key] = gamma.abs() + eps
            continue
        sign = torch.where(gamma < 0, -1.0, 1.0).to(gamma)
        result[key] = (gamma.abs() - eps).clamp(min=0)
        conv, mean = f"{base}conv.weight", f"{base}norm.running_mean"
        result[conv] = tensors[conv] * sign.view(-1, 1, 1, 1)
        result[mean] = tensors[mean] * sign
        if (bias := f"{base}conv.bias") in tensors:
            result[bias] = tensors[bias] * sign
    return result
