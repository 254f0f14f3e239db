"""The weights of every conv of a deployed network, computed a second time from the checkpoint's raw tensors.

The algebra is deliberately written here again, in numpy and float64. Nothing of `rcil.nn` is used, so a mistake in
folding, merging or reading norms shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from rcil.core.errors import CheckpointError
from rcil.model.architecture import RC, Architecture
from rcil.model.attached import AttachedArchitecture, Unit

Array = NDArray[np.float64]
Kernel = tuple[Array, Array | None]
"""Weight [O, I/groups, kh, kw] and bias [O] of a conv."""
EPS = 1e-5
LITE_BACKBONE_EPS = 1e-3
"""EfficientNet-lites have TensorFlow's eps in their backbones; heads always have torch's."""


class Tensors:
    """The tensors of a checkpoint by name, in float64; each is read on access.

    Args:
        names: All names in the file.
        read: Reads one tensor.
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], NDArray[Any]]) -> None:
        self.names = frozenset(names)
        self.used: set[str] = set()
        self._read = read

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise CheckpointError(f"the checkpoint has no tensor {name}", "Restore the file from where it came from.")
        self.used.add(name)
        return np.asarray(self._read(name), np.float64)

    def get(self, name: str) -> Array | None:
        """The tensor, or None where there is none of this name."""
        return self[name] if name in self.names else None

    @property
    def unused(self) -> list[str]:
        """Tensors that were never read; batch counters do not matter, because they have no effect on the outputs."""
        return sorted(name for name in self.names - self.used if not name.endswith(".num_batches_tracked"))


@contextmanager
def open_tensors(path: Path) -> Iterator[Tensors]:
    """The tensors of a checkpoint file; they can be read while the context is open."""
    try:
        with safe_open(path, framework="np") as file:
            yield Tensors(file.keys(), file.get_tensor)
    except (SafetensorError, OSError, TypeError) as error:
        raise CheckpointError(f"cannot read the tensors of {path}: {error}", "Restore the file.") from error


def deployed_weights(tensors: Tensors, arch: Architecture, wanted: Iterable[str]) -> Iterator[tuple[str, Array]]:
    """Name and values of every tensor of the deployed network, in float64.

    Args:
        tensors: Of a checkpoint of any step, folded or not, of a segmenter or of a classifier of whole images.
        arch: What the checkpoint says about its network.
        wanted: Names of all tensors of the plain network, as in its state dict.

    Raises:
        CheckpointError: A tensor is missing, or one of the checkpoint has no counterpart in the deployed network.
    """
    bias_of: dict[str, Array | None] = {}
    for name in wanted:
        layer, _, kind = name.rpartition(".")
        if kind == "weight":
            weight, bias_of[layer] = _kernel(tensors, arch, layer)
            yield name, weight
        elif kind == "bias":
            bias = bias_of.pop(layer)
            assert bias is not None, name
            yield name, bias
        else:
            yield name, _cosine_scale(tensors)
    if tensors.unused:
        raise CheckpointError(
            f"the deployed network does not use the tensor {tensors.unused[0]}",
            "Check that the checkpoint's description is that of its network.",
        )


def attached_weights(
    tensors: Tensors, arch: AttachedArchitecture, wanted: Iterable[str], eps: Mapping[str, float]
) -> Iterator[tuple[str, Array]]:
    """Name and values of every tensor of the user's own network with its norms absorbed, in float64.

    Args:
        tensors: Of a checkpoint of any step, folded or not.
        arch: What the checkpoint says about its network.
        wanted: Names of all tensors of the plain network.
        eps: That of every norm, by its name in the user's network.
    """
    units = {unit.conv: unit for unit in arch.units}
    for name in wanted:
        layer, _, kind = name.rpartition(".")
        if layer not in units or kind not in ("weight", "bias"):
            yield name, tensors[name]
            continue
        unit = units[layer]
        weight, bias = _attached_kernel(tensors, arch, unit, eps.get(unit.norm or "", EPS))
        values = weight if kind == "weight" else bias
        assert values is not None, name
        yield name, values


def _attached_kernel(tensors: Tensors, arch: AttachedArchitecture, unit: Unit, eps: float) -> Kernel:
    """Weight and bias of a conv with its norm and both of its branches."""
    conv, rc = unit.conv, arch.rc
    if arch.folded or (unit.norm is None and (rc is None or not unit.rc)):
        return _plain(tensors, conv)
    if rc is None or not unit.rc:
        return _normalised(tensors, conv, eps)
    old, new = (
        _plain(tensors, branch) if form == "merged" or unit.norm is None else _normalised(tensors, branch, eps)
        for branch, form in ((f"{conv}.old", rc.old), (f"{conv}.new", rc.new))
    )
    return _mixed(tensors, rc, conv, old, new)


def _kernel(tensors: Tensors, arch: Architecture, layer: str) -> Kernel:
    """Weight and bias of the conv `layer` of the plain network."""
    if layer in ("classifier.groups.0", "head.groups.0"):
        return _rows(tensors, layer.removesuffix(".0"))
    if layer == "head.conv":
        return _proxies(tensors), None
    if arch.folded:
        return _plain(tensors, layer)
    if layer.endswith((".project.left", ".project.right")):
        return _summand(tensors, arch, layer)
    unit = layer.removesuffix(".0") if _is_sequence(tensors, layer) else layer
    if f"{unit}.conv.weight" in tensors:
        return _normalised(tensors, unit, _eps(arch, unit), inplace=arch.norm != "batch")
    if arch.rc is None:
        raise CheckpointError(
            f"the checkpoint has no conv for {unit}", "Check that the checkpoint's description is that of its network."
        )
    mixed = _mixed(tensors, arch.rc, unit, *(_branch(tensors, arch, f"{unit}.{side}") for side in ("old", "new")))
    if not arch.rc.norm_after:
        return mixed
    return _absorbed(tensors, mixed, unit, _eps(arch, unit), inplace=arch.norm != "batch")


def _is_sequence(tensors: Tensors, layer: str) -> bool:
    """Whether `layer` is the conv of a sequence of conv and activation, so that the unit's name does not end in .0."""
    return not any(f"{layer}.{part}" in tensors for part in ("conv.weight", "new.weight", "new.conv.weight"))


def _plain(tensors: Tensors, layer: str) -> Kernel:
    """A conv without a norm."""
    return tensors[f"{layer}.weight"], tensors.get(f"{layer}.bias")


def _mixed(tensors: Tensors, rc: RC, unit: str, old: Kernel, new: Kernel) -> Kernel:
    """Both branches in one kernel, eta * old + (1 - eta) * new, because convolution is linear in its kernel."""
    eta = _share_of_old(tensors, rc, unit, len(old[0]))
    weight = _by_row(eta, old[0]) + _by_row(1 - eta, new[0])
    return weight, None if old[1] is None or new[1] is None else eta * old[1] + (1 - eta) * new[1]


def _branch(tensors: Tensors, arch: Architecture, branch: str) -> Kernel:
    """A branch with a norm, a branch that is a conv with bias, or one without either, where a norm follows the sum."""
    assert arch.rc is not None
    if arch.rc.norm_after:
        return tensors[f"{branch}.weight"], None
    form = arch.rc.old if branch.endswith(".old") else arch.rc.new
    if form == "norm":
        return _normalised(tensors, branch, _eps(arch, branch), inplace=arch.norm != "batch")
    return tensors[f"{branch}.weight"], tensors[f"{branch}.bias"]


def _share_of_old(tensors: Tensors, rc: RC, unit: str, channels: int) -> Array:
    """Expected weight of the old branch in each channel."""
    if rc.mix == "learnable":
        share: Array = 1 / (1 + np.exp(-tensors[f"{unit}.mix.logit"]))
        return share
    return np.full(channels, rc.old_weight if rc.mix == "fixed" else 0.5)


def _eps(arch: Architecture, unit: str) -> float:
    return LITE_BACKBONE_EPS if arch.lite and unit.startswith("backbone.") else EPS


def _normalised(tensors: Tensors, unit: str, eps: float, *, inplace: bool = False) -> Kernel:
    """A conv followed by its norm."""
    return _absorbed(tensors, _plain(tensors, f"{unit}.conv"), unit, eps, inplace=inplace)


def _absorbed(tensors: Tensors, kernel: Kernel, unit: str, eps: float, *, inplace: bool) -> Kernel:
    """A kernel followed by the norm of a unit."""
    weight, bias = kernel
    scale, shift = _scale_and_shift(tensors, f"{unit}.norm", eps, inplace=inplace)
    return _by_row(scale, weight), shift if bias is None else shift + scale * bias


def _summand(tensors: Tensors, arch: Architecture, layer: str) -> Kernel:
    """One of two convs whose sum is normalised; the left conv gets the whole shift."""
    parent = layer.rpartition(".")[0]
    scale, shift = _scale_and_shift(tensors, f"{parent}.norm", _eps(arch, parent), inplace=arch.norm != "batch")
    biases = (tensors.get(f"{parent}.{side}.bias") for side in ("left", "right"))
    total = sum((scale * bias for bias in biases if bias is not None), shift)
    return _by_row(scale, tensors[f"{layer}.weight"]), total if layer.endswith(".left") else None


def _scale_and_shift(tensors: Tensors, norm: str, eps: float, *, inplace: bool) -> tuple[Array, Array]:
    """Scale and shift of a norm in evaluation mode: (x - mean) / sqrt(variance + eps) * gamma + beta.

    The norms of inplace-ABN ignore the sign of gamma and add eps to it.
    """
    keys = ("weight", "bias", "running_mean", "running_var")
    gamma, beta, mean, variance = (tensors[f"{norm}.{key}"] for key in keys)
    if inplace:
        gamma = np.abs(gamma) + eps
    scale = gamma / np.sqrt(variance + eps)
    return scale, beta - scale * mean


def _rows(tensors: Tensors, groups: str) -> Kernel:
    """All class rows: segmenters store one kernel, classifiers of whole images one kernel per step."""
    whole = groups.removesuffix(".groups")
    if f"{whole}.weight" in tensors:
        return tensors[f"{whole}.weight"], tensors[f"{whole}.bias"]
    return _stacked(tensors, groups, "weight"), _stacked(tensors, groups, "bias")


def _proxies(tensors: Tensors) -> Array:
    """All proxies of a cosine head, each of length 1."""
    if "head.conv.weight" in tensors:
        return tensors["head.conv.weight"]
    rows = _stacked(tensors, "head.groups", "weight")
    lengths: Array = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return rows / lengths


def _cosine_scale(tensors: Tensors) -> Array:
    stored = "head.scale" in tensors
    return tensors["head.scale"] if stored else np.exp(tensors["head.log_scale"])


def _stacked(tensors: Tensors, groups: str, kind: str) -> Array:
    """The rows of all steps, concatenated."""
    parts: list[Array] = []
    while f"{groups}.{len(parts)}.{kind}" in tensors:
        parts.append(tensors[f"{groups}.{len(parts)}.{kind}"])
    if not parts:
        raise CheckpointError(f"the checkpoint has no {groups}", "Restore the file from where it came from.")
    return np.concatenate(parts)


def _by_row(factors: Array, kernel: Array) -> Array:
    """Every output channel of a kernel times its factor."""
    return kernel * factors.reshape(-1, *(1,) * (kernel.ndim - 1))
