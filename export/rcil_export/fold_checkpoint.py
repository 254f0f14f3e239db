"""Folding a checkpoint file, and checking the result before it is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import TensorProto

from rcil.checkpoint.file import load_for_inference, save
from rcil.core.errors import GateError, RcilError
from rcil.core.files import check_other_file, sha256_of
from rcil.hardware.devices import choose_device
from rcil.model.architecture import Architecture
from rcil.model.attached import AttachedArchitecture
from rcil.model.metadata import LineageEntry, Metadata
from rcil.nn import Network, cost, fold, plain_twin
from rcil_export.certificate.difference import MAX_ULPS, distances
from rcil_export.certificate.twin import attached_twin
from rcil_export.certificate.weights import deployed_weights, open_tensors

TOLERANCE = 1e-4
"""Largest allowed error of fp32 logits, as a share of their range."""


class FoldCheckError(RcilError):
    """The folded network does not compute what the original does, or costs more than a plain one."""

    exit_code = 5


@dataclass(frozen=True)
class FoldCheck:
    """Comparison on random images; `ok` says whether the folded file may be written."""

    relative_error: float
    """Largest difference of two logits, as a share of the range of all logits."""
    argmax_agreement: float
    """Share of pixels with the same class, exact ties of the original logits aside."""
    parameters: int
    plain_parameters: int
    macs: int
    plain_macs: int
    rc_blocks: int
    layers_folded: int

    @property
    def ok(self) -> bool:
        """Within tolerance, and exactly as expensive as the network that never had RC."""
        same_cost = (self.parameters, self.macs) == (self.plain_parameters, self.plain_macs)
        return self.relative_error <= TOLERANCE and same_cost

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"ok": self.ok, "tolerance": TOLERANCE, **asdict(self)}


def load_deployable(source: Path, *, force: bool = False) -> tuple[Network, Metadata]:
    """Load a checkpoint; a checkpoint that is marked as rejected needs `force`."""
    model, metadata = load_for_inference(source)
    if metadata.rejected is not None and not force:
        raise GateError(
            f"{source} is marked as rejected: {metadata.rejected}",
            "Nothing was written. Teach the class again with other settings, or insist with --force.",
        )
    return model, metadata


def fold_checkpoint(
    source: Path,
    target: Path,
    *,
    size: tuple[int, int] = (193, 257),
    images: int = 2,
    force: bool = False,
    device: str = "cpu",
) -> FoldCheck:
    """Fold `source`, compare both networks on random images, and write `target` only if they agree.

    Args:
        source: A checkpoint that is not folded.
        target: The folded checkpoint.
        size: Height and width of the random images.
        images: Number of random images.
        force: Fold a checkpoint that is marked as rejected too; the mark stays.
        device: Device on which both networks are compared: `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    chosen = choose_device(device)
    check_other_file(target, source, "the checkpoint it is folded from")
    model, metadata = load_deployable(source, force=force)
    if metadata.architecture.folded:
        raise RcilError(f"{source} is folded already", "Use it as it is, or fold the checkpoint it came from.")
    folded, report = fold(model)
    check = compare(
        model.to(chosen),
        folded.to(chosen),
        size=size,
        images=images,
        rc_blocks=report.count("rc"),
        layers=len(report.layers),
    )
    if not check.ok:
        raise FoldCheckError(
            f"folding {source} changed the logits by {check.relative_error:.2e} of their range "
            f"(allowed {TOLERANCE:.0e}) or its cost",
            "Nothing was written. Norm statistics with huge scales are the usual cause: see `rcil info`.",
        )
    wrong = _first_wrong_tensor(source, metadata, folded.cpu())
    if wrong is not None:
        raise FoldCheckError(
            f"folding {source} gave other weights than its tensors do when they are folded a second way: {wrong}",
            "Nothing was written; report this.",
        )
    entry = LineageEntry(step=metadata.step, source="fold", parent_sha256=sha256_of(source))
    save(target, folded, metadata.model_copy(update={"lineage": (*metadata.lineage, entry)}))
    return check


def _first_wrong_tensor(source: Path, metadata: Metadata, folded: Network) -> str | None:
    """The first tensor of the folded network that differs from `certificate.weights`, and by how much."""
    if isinstance(metadata.architecture, AttachedArchitecture):
        return _first_wrong_attached(source, metadata.architecture, folded)
    assert isinstance(metadata.architecture, Architecture)  # adopted graphs have no network
    state = folded.state_dict()
    with open_tensors(source) as tensors:
        for name, expected in deployed_weights(tensors, metadata.architecture, state):
            ulps, relative = distances(state[name].numpy(), expected.astype(np.float32), TensorProto.FLOAT)
            if float(ulps.max(initial=0)) > MAX_ULPS:
                return f"{name} differs by up to {relative:.2e} of its largest number"
    return None


def _first_wrong_attached(source: Path, arch: AttachedArchitecture, folded: Network) -> str | None:
    """The same for a network of another library."""
    expected = attached_twin(source, arch, list(folded.names)).tensors()
    for name, found in folded.tensors().items():
        ulps, relative = distances(found.numpy(), expected[name].numpy(), TensorProto.FLOAT)
        if found.is_floating_point() and float(ulps.max(initial=0)) > MAX_ULPS:
            return f"{name} differs by up to {relative:.2e} of its largest number"
    return None


@torch.no_grad()
def compare(
    model: Network, folded: Network, *, size: tuple[int, int], images: int, rc_blocks: int, layers: int
) -> FoldCheck:
    """Outputs on random images and cost against the plain twin."""
    x = torch.randn(images, 3, *size, generator=torch.Generator().manual_seed(0))
    x = x.to(next(model.parameters()).device)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 would round convs to 10 bits
        before, after = model(x), folded(x)
    error = float((before - after).abs().max() / (before.max() - before.min()).clamp(min=1e-30))
    top = before.topk(min(2, before.shape[1]), dim=1).values
    tied = (top[:, 0] - top[:, -1] == 0) if top.shape[1] > 1 else torch.zeros_like(top[:, 0], dtype=torch.bool)
    agree = (before.argmax(1) == after.argmax(1)) | tied
    with torch.device("meta"):
        twin = plain_twin(model)
    mine, plain = cost(folded), cost(twin)
    return FoldCheck(
        relative_error=error,
        argmax_agreement=float(agree.double().mean()),
        parameters=mine.parameters,
        plain_parameters=plain.parameters,
        macs=mine.macs,
        plain_macs=plain.macs,
        rc_blocks=rc_blocks,
        layers_folded=layers,
    )
