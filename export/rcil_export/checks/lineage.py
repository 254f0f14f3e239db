"""What a continual step changed: weights layer by layer, class rows, and the logits of old classes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from rcil.core.errors import RcilError
from rcil.core.files import sha256_of
from rcil.model.class_match import match_classes
from rcil.nn import Network, Segmenter, fold
from rcil_export.checks.artefact import CheckpointArtefact, open_artefact
from rcil_export.checks.bisect import check_same_network
from rcil_export.checks.layer_alignment import unit_paths
from rcil_export.checks.limits import Limits
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.result import FOR_INFORMATION, Item, Result
from rcil_export.images import CheckImages

RowChange = Literal["unchanged", "changed", "new", "gone"]


@dataclass(frozen=True)
class LayerDelta:
    """One conv of the folded forms."""

    layer: str
    delta: float
    """||child - parent|| / ||parent||, over kernel and bias."""


@dataclass(frozen=True)
class RowDelta:
    """One class row of the classifier."""

    name: str
    change: RowChange
    delta: float
    """See `LayerDelta.delta`; NaN for a row that is new or gone."""


@dataclass(frozen=True)
class LineageReport:
    """The result of `compare_with_parent`."""

    child: str
    parent: str
    recorded: bool
    """Whether the child's lineage names this parent file."""
    layers: tuple[LayerDelta, ...]
    """In the order of the network."""
    rows: tuple[RowDelta, ...]
    drift: OutputsReport
    """Outputs of child and parent, compared on the classes that both have."""

    def as_result(self) -> Result:
        """For information only, except for the drift if the user limits it."""
        return Result(
            "lineage",
            f"What {self.child} changed since {self.parent}",
            (self._parent(), self._layers(), self._rows(), self._drift()),
        )

    def _parent(self) -> Item:
        measured = "recorded in the lineage" if self.recorded else "not recorded: another file, or a copy saved anew"
        return Item("parent", "Parent", True if self.recorded else None, measured, FOR_INFORMATION)

    def _layers(self) -> Item:
        moved = [layer for layer in self.layers if layer.delta > 0]
        most = sorted(moved, key=lambda layer: -layer.delta)[:3]
        named = ", ".join(f"{layer.layer} {layer.delta:.1%}" for layer in most)
        measured = f"{len(moved)} of {len(self.layers)} layers changed" + (f"; most: {named}" if most else "")
        detail = {"layers": [asdict(layer) for layer in self.layers]}
        return Item("weights", "Weights", None, measured, FOR_INFORMATION, detail)

    def _rows(self) -> Item:
        kinds: dict[str, list[str]] = {}
        for row in self.rows:
            text = f"{row.name} {row.delta:.1%}" if row.change == "changed" else row.name
            kinds.setdefault(row.change, []).append(text)
        measured = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
        detail = {"rows": [asdict(row) | {"delta": None if math.isnan(row.delta) else row.delta} for row in self.rows]}
        return Item("rows", "Class rows", None, measured, FOR_INFORMATION, detail)

    def _drift(self) -> Item:
        numbers, limit = self.drift.parts["all"], self.drift.limits.drift
        measured = (
            f"median {numbers.errors.p50:.1e}, 99 % {numbers.errors.p99:.1e} of the logit range; "
            f"same old class in {numbers.agreement.share:.2%} of pixels"
        )
        if not math.isnan(numbers.miou_drop):
            measured += f"; mIoU {100 * numbers.miou_a:.2f} -> {100 * numbers.miou_b:.2f} among old classes"
        required = FOR_INFORMATION if limit is None else f"99 % at most {limit:.1e} of the logit range"
        passed = None if limit is None else numbers.errors.p99 <= limit
        return Item("drift", "Logits of old classes", passed, measured, required, numbers.as_document())


def compare_with_parent(child: Path, parent: Path, images: CheckImages, limits: Limits | None = None) -> LineageReport:
    """Compare a checkpoint with the one it was trained from; both may be folded or not.

    Args:
        child: A checkpoint.
        parent: The checkpoint of the step before.
        images: For the drift of old-class logits.
        limits: `limits.drift` decides; None: nothing is judged.
    """
    young, old = _checkpoint(child), _checkpoint(parent)
    check_same_network(young, old)
    models = [_folded(artefact.model) for artefact in (young, old)]
    return LineageReport(
        child=str(child),
        parent=str(parent),
        recorded=sha256_of(parent) in {entry.parent_sha256 for entry in young.metadata.lineage},
        layers=layer_deltas(*models),
        rows=row_deltas(*models),
        drift=compare_outputs(old, young, images, limits),
    )


def check_parent(child: CheckpointArtefact, parent: Path) -> None:
    """Raise unless `parent` is a checkpoint that `child` can be compared with."""
    old = _checkpoint(parent)
    check_same_network(child, old)
    match_classes(old.metadata.classes, child.metadata.classes)


def _checkpoint(path: Path) -> CheckpointArtefact:
    artefact = open_artefact(path)
    if not isinstance(artefact, CheckpointArtefact):
        raise RcilError(f"{path} is not a checkpoint", "What a step changed is compared between .safetensors files.")
    return artefact


def _folded(model: Network) -> Network:
    return model if model.arch.folded else fold(model)[0]


def layer_deltas(child: Network, parent: Network) -> tuple[LayerDelta, ...]:
    """How far every conv of a folded network moved from its parent's, the classifier aside."""
    before = dict(_convs(parent))
    return tuple(LayerDelta(name, _relative(conv, before[name])) for name, conv in _convs(child))


def _convs(model: Network) -> list[tuple[str, Tensor]]:
    """Kernel and bias of every conv in one row, by the unit it belongs to; the projection has two convs."""
    units = set(unit_paths(model.arch)) if isinstance(model, Segmenter) else {path for path, _ in model.named_modules()}
    found = []
    for path, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and model.part_of(path) != "classifier":
            name = path.rpartition(".")[0] if path not in units and path.endswith(".0") else path
            found.append((name, _flat(module.weight, module.bias)))
    return found


def row_deltas(child: Network, parent: Network) -> tuple[RowDelta, ...]:
    """What became of every class row, matched by name; rows of the child first."""
    after, before = (dict(zip(m.names, _rows(m), strict=True)) for m in (child, parent))
    result = []
    for name, row in after.items():
        if name not in before:
            result.append(RowDelta(name, "new", float("nan")))
        else:
            delta = _relative(row, before[name])
            result.append(RowDelta(name, "changed" if delta else "unchanged", delta))
    return (*result, *(RowDelta(name, "gone", float("nan")) for name in before if name not in after))


def _rows(model: Network) -> list[Tensor]:
    weight, bias = model.rows.rows()
    return [_flat(*row) for row in zip(weight, bias, strict=True)]


def _flat(weight: Tensor, bias: Tensor | None) -> Tensor:
    parts = [weight.detach().double().flatten()]
    return torch.cat(parts if bias is None else [*parts, bias.detach().double().flatten()])


def _relative(after: Tensor, before: Tensor) -> float:
    return float((after - before).norm() / before.norm().clamp(min=1e-30))
