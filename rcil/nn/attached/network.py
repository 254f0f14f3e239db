"""A network of another library behind the interface of our own networks; see `Network`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rcil.core.errors import ConfigError, RcilError, first_line
from rcil.model.architecture import RC, STAGES
from rcil.model.attached import AttachedArchitecture, Unit
from rcil.nn.attached.builders import build_module
from rcil.nn.attached.outputs import pick
from rcil.nn.attached.units import plain_norm, split_norm
from rcil.nn.classifier import IncrementalClassifier, more_rows
from rcil.nn.fold import duplicate
from rcil.nn.network import MapKind, Maps, Network, Part, RowStart
from rcil.nn.units.convnorm import ConvNorm
from rcil.nn.units.plain import with_bias
from rcil.nn.units.rc import RCConv, make_mix

PREFIX = "net."


class MissingMapError(ConfigError):
    """A pass did not run a module whose map is needed."""


class RowSum:
    """The rows of one or more classifiers whose outputs are added; see `ClassRows`.

    Args:
        parts: The classifiers, which have the same classes.
        scales: The factor of each in the logits; none if all are 1.
    """

    def __init__(self, parts: Sequence[IncrementalClassifier], scales: Sequence[float] = ()) -> None:
        self.parts = parts
        self.scales = scales or [1.0] * len(parts)

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """Class names of each step."""
        return self.parts[0].steps

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return self.parts[0].names

    @property
    def has_bias(self) -> bool:
        """Whether a part has biases."""
        return any(part.has_bias for part in self.parts)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Kernels over the features of all parts side by side [classes, F, 1, 1], and the sums of biases [classes]."""
        weights, biases = zip(*(part.rows() for part in self.parts), strict=True)
        weights = tuple(weight * scale for weight, scale in zip(weights, self.scales, strict=True))
        return torch.cat(weights, dim=1), sum(bias * scale for bias, scale in zip(biases, self.scales, strict=True))

    def set_rows(self, weight: Tensor, bias: Tensor) -> None:
        """Write all rows; the first part with biases gets them."""
        sizes = [part.rows()[0].shape[1] for part in self.parts]
        rest = bias
        for part, kernel, scale in zip(self.parts, torch.split(weight, sizes, dim=1), self.scales, strict=True):
            part.set_rows(kernel / scale, rest / scale)
            rest = torch.zeros_like(bias) if part.has_bias else rest

    def features(self, inputs: Sequence[Tensor]) -> Tensor:
        """Features of all parts side by side, at the size of the largest."""
        maps = [part.features([x]) for part, x in zip(self.parts, inputs, strict=True)]
        size = max((tuple(x.shape[-2:]) for x in maps), key=lambda sides: sides[0] * sides[1])
        same = [x if x.shape[-2:] == size else F.interpolate(x, size, mode="bilinear") for x in maps]
        return same[0] if len(same) == 1 else torch.cat(same, dim=1)

    def train_rows(self, *, old: bool, new: bool) -> None:
        """Whether rows of earlier steps and of the last step take gradients."""
        for part in self.parts:
            part.train_rows(old=old, new=new)


class AttachedNetwork(Network):
    """A module of another library; its units are RC blocks or conv+norm units at the places of their convs.

    Args:
        net: The module as its factory builds it, with `len(names)` class rows; it is changed.
        arch: Its description.
        steps: Class names of each step; all of their rows must be there.
    """

    arch: AttachedArchitecture
    loose_norms = True

    def __init__(self, net: nn.Module, arch: AttachedArchitecture, steps: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.net = net
        self.arch = arch
        freeze_unused(net, arch)
        for unit in arch.units:
            _install(net, unit, arch)
        for name in arch.classifier:
            conv = net.get_submodule(name)
            assert isinstance(conv, nn.Conv2d)
            _set(net, name, _split(conv, steps))

    @property
    def rows(self) -> RowSum:
        """The classifier."""
        parts = [self.net.get_submodule(name) for name in self.arch.classifier]
        return RowSum([part for part in parts if isinstance(part, IncrementalClassifier)], self.arch.scales)

    @property
    def module(self) -> nn.Module:
        """The module of the other library."""
        return self.net

    @overload
    def forward(self, x: Tensor, maps: None = None) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, maps: MapKind) -> Maps: ...

    def forward(self, x: Tensor, maps: MapKind | None = None) -> Tensor | Maps:
        """See `Network.forward`; the maps are those that modules return, whichever kind is asked for."""
        padded = pad_to(x, self.arch.multiple)
        if maps is None:
            return self._full(self._run(padded), x)
        kept: dict[str, Tensor] = {}
        with ExitStack() as hooks:
            for name in self.arch.maps:
                # a copy, because an activation after the module may work in place
                hook = self.net.get_submodule(name).register_forward_hook(
                    lambda module, inputs, output, name=name: kept.__setitem__(name, output.clone())
                )
                hooks.callback(hook.remove)
            for name in self.arch.classifier:
                hook = self.net.get_submodule(name).register_forward_pre_hook(
                    lambda module, inputs, name=name: kept.__setitem__(name, inputs[0])
                )
                hooks.callback(hook.remove)
            small = self._run(padded)
        missing = [name for name in (*self.arch.classifier, *self.arch.maps) if name not in kept]
        if missing:
            raise MissingMapError(
                f"the module '{missing[0]}' of {self.arch.factory}, whose map is distilled, does not run in every pass",
                "Attach the network with maps=... and name modules that always run.",
            )
        inputs = tuple(kept[name] for name in self.arch.classifier)
        stages = tuple(kept[name] for name in self.arch.maps)
        return Maps(
            stages=stages,
            encoder=stages[-1] if stages else inputs[0],
            decoder=max(inputs, key=lambda value: value.shape[-1]),
            inputs=inputs,
            logits_small=small,
            logits=self._full(small, x),
        )

    def _run(self, x: Tensor) -> Tensor:
        """The logits that the module gives for images of an allowed size."""
        try:
            result = self.net(x)
        except (RcilError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # any code may run inside
            mode = "training" if self.training else "evaluation"
            raise ConfigError(
                f"{self.arch.factory} does not run in {mode} mode on images {list(x.shape)}: {type(error).__name__}: "
                f"{first_line(error)}",
                "Choose another size of images, or of crops in training.",
            ) from error
        other = self.training and self.arch.training_output is not None
        return pick(result, self.arch.training_output if other else self.arch.output, len(self.names))

    def _full(self, small: Tensor, x: Tensor) -> Tensor:
        """Logits [N, classes, H, W] at the size of x, from those of the padded image at any size."""
        height, width = x.shape[-2:]
        size = [padded_side(side, self.arch.multiple) for side in (height, width)]
        if list(small.shape[-2:]) != size:
            small = F.interpolate(small, size=size, mode="bilinear", align_corners=False)
        return small if size == [height, width] else small[..., :height, :width]

    @torch.no_grad()
    def grow(self, new: Sequence[str], start: RowStart) -> None:
        """See `Network.grow`. If several convs are added, the first with biases shares the background's probability."""
        rows = self.rows
        sharing = next((part for part in rows.parts if part.has_bias), None)
        for name, part, scale in zip(self.arch.classifier, rows.parts, rows.scales, strict=True):
            own: RowStart = start if part is sharing or start == "random" else "background"
            _set(self.net, name, part.extended(new, own, scale))
        grow_auxiliary(self.net, self.arch, len(self.names))

    def branched(self, rc: RC) -> AttachedNetwork:
        """See `Network.branched`."""
        check_form(rc)
        branched = duplicate(self, {})
        branched.arch = self.arch.replace(rc=rc.model_dump())
        for unit in self.arch.units:
            part = branched.net.get_submodule(unit.conv)
            if unit.rc and isinstance(part, ConvNorm | nn.Conv2d):
                mix = make_mix(rc, part.out_channels).to(next(part.parameters()))
                _set(branched.net, unit.conv, RCConv(part, copy.deepcopy(part), mix, frozen=rc.frozen))
        return branched.train(self.training)

    def with_norms(self) -> AttachedNetwork:
        """See `Network.with_norms`."""
        plain = duplicate(self, {})
        plain.arch = self.arch.replace(folded=False)
        template = build_module(self.arch.factory, self.arch.args)
        for unit in self.arch.units:
            conv = plain.net.get_submodule(unit.conv)
            if unit.norm is None or not isinstance(conv, nn.Conv2d):
                continue
            parts = split_norm(template.get_submodule(unit.norm))
            original = template.get_submodule(unit.conv)
            assert parts is not None
            norm = plain_norm(parts[0]).to(conv.weight)
            if original.bias is None:
                conv.bias = None
            _set(plain.net, unit.conv, ConvNorm(conv, norm))
        return plain

    def early(self, count: int) -> list[nn.Module]:
        """See `Network.early`."""
        return [self.net.get_submodule(name) for names in self.arch.early[:count] for name in names]

    def part_of(self, parameter: str) -> Part:
        """See `Network.part_of`."""
        own = parameter.removeprefix(PREFIX)
        if _within(own, self.arch.classifier):
            return "classifier"
        return "backbone" if any(_within(own, names) for names in self.arch.early) else "head"

    def tensors(self) -> dict[str, Tensor]:
        """See `Network.tensors`; the names are those of the module, except inside units.

        Tensors of a module that has several names are stored under the first one.
        """
        modules = {name for name, _ in self.net.named_modules()}
        state = {key: value for key, value in self.net.state_dict().items() if key.rpartition(".")[0] in modules}
        state = {key: value for key, value in state.items() if not _within(key, self.arch.classifier)}
        for name, part in zip(self.arch.classifier, self.rows.parts, strict=True):
            weight, bias = part.kernel()
            state[f"{name}.weight"] = weight
            if bias is not None:
                state[f"{name}.bias"] = bias
        return state

    def load_tensors(self, tensors: Mapping[str, Tensor], order: Sequence[int]) -> None:
        """See `Network.load_tensors`."""
        own = {key: value for key, value in tensors.items() if not _within(key, self.arch.classifier)}
        for name in self.arch.auxiliary:
            own |= {key: own[key][list(order)] for key in (f"{name}.weight", f"{name}.bias") if key in own}
        self.load_state_dict({f"{PREFIX}{key}": value for key, value in own.items()}, strict=False)
        for name, part in zip(self.arch.classifier, self.rows.parts, strict=True):
            bias = tensors.get(f"{name}.bias")
            part.set_rows(tensors[f"{name}.weight"][list(order)], None if bias is None else bias[list(order)])


def check_form(rc: RC) -> None:
    """Raise for forms of RC blocks that exist in our own networks only."""
    if rc.norm_after:
        raise ConfigError(
            "networks of other libraries cannot have one norm after the sum of two branches",
            "Choose norms: branch or norms: none.",
        )
    if rc.stages != STAGES:
        raise ConfigError(
            "networks of other libraries have branches in all their stages",
            "Leave out the option stages.",
        )


def layer_paths(arch: AttachedArchitecture) -> list[str]:
    """Paths of the layers that every form of the network has: its units and the convs of its classifier."""
    return [f"{PREFIX}{name}" for name in (*(unit.conv for unit in arch.units), *arch.classifier)]


def pad_to(x: Tensor, multiple: int) -> Tensor:
    """Add zeros, which are the mean colour, below and on the right of x [N, C, H, W] up to the next multiples."""
    below, right = (padded_side(side, multiple) - side for side in x.shape[-2:])
    return F.pad(x, (0, right, 0, below)) if below or right else x


def padded_side(side: int, multiple: int) -> int:
    """The next multiple."""
    return -(-side // multiple) * multiple


def freeze_unused(net: nn.Module, arch: AttachedArchitecture) -> None:
    """Parameters that the logits do not depend on take no gradients; all processes of a run agree on the others."""
    for name, parameter in net.named_parameters():
        if name in arch.unused:
            parameter.requires_grad_(False)


def grow_auxiliary(net: nn.Module, arch: AttachedArchitecture, count: int) -> None:
    """Give the layers of auxiliary heads this many rows; new ones are copies of the background's."""
    for name in arch.auxiliary:
        layer = net.get_submodule(name)
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        if (missing := count - len(layer.weight)) > 0:
            _set(net, name, with_rows(layer, missing))


L = TypeVar("L", bound="nn.Conv2d | nn.Linear")


@torch.no_grad()
def with_rows(layer: L, more: int) -> L:
    """A copy of a layer with more rows, which are copies of the first."""
    grown = copy.deepcopy(layer)
    for name, rows in layer.named_parameters(recurse=False):
        added = rows[:1].expand(more, *rows.shape[1:])
        setattr(grown, name, nn.Parameter(torch.cat((rows, added)), requires_grad=rows.requires_grad))
    setattr(grown, "out_channels" if isinstance(grown, nn.Conv2d) else "out_features", len(grown.weight))
    return grown


def build_attached(arch: AttachedArchitecture, steps: Sequence[Sequence[str]]) -> AttachedNetwork:
    """A network with the weights that its factory gives it; class rows beyond those are copies of the background's."""
    net = grown_module(arch, sum(map(len, steps))).float()
    return AttachedNetwork(net, arch, steps)


def grown_module(arch: AttachedArchitecture, classes: int) -> nn.Module:
    """The module that the factory builds, with this many class rows."""
    net = build_module(arch.factory, arch.args)
    for name in arch.classifier:
        conv = net.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        if (missing := classes - conv.out_channels) > 0:
            _set(net, name, with_rows(conv, missing))
    grow_auxiliary(net, arch, classes)
    return net


def _install(net: nn.Module, unit: Unit, arch: AttachedArchitecture) -> None:
    """Replace a conv by the form that the description asks for, and its norm by what is left of it."""
    conv = net.get_submodule(unit.conv)
    assert isinstance(conv, nn.Conv2d)
    norm: nn.Module | None = None
    if unit.norm is not None:
        parts = split_norm(net.get_submodule(unit.norm))
        assert parts is not None
        norm, rest = parts
        _set(net, unit.norm, rest)
    if arch.folded:
        if norm is not None:
            with_bias(conv)
        return
    rc = arch.rc if unit.rc else None
    if rc is None:
        if norm is not None:
            _set(net, unit.conv, ConvNorm(conv, norm))
        return
    old, new = (_branch(conv, norm, merged=form == "merged") for form in (rc.old, rc.new))
    _set(net, unit.conv, RCConv(old, new, make_mix(rc, conv.out_channels).to(conv.weight), frozen=rc.frozen))


def _branch(conv: nn.Conv2d, norm: nn.Module | None, *, merged: bool) -> ConvNorm | nn.Conv2d:
    conv = copy.deepcopy(conv)
    if norm is None:
        return conv
    return with_bias(conv) if merged else ConvNorm(conv, copy.deepcopy(norm))


def _split(conv: nn.Conv2d, steps: Sequence[Sequence[str]]) -> IncrementalClassifier:
    """The classifier with the rows of a conv, one group per step."""
    classifier = IncrementalClassifier.of(conv, steps[0])
    classifier.steps = tuple(tuple(names) for names in steps)
    if len(steps) > 1:
        classifier.groups = nn.ModuleList(more_rows(conv, len(names)) for names in steps)
        classifier.set_rows(conv.weight.detach(), None if conv.bias is None else conv.bias.detach())
    return classifier.train(conv.training)


def _set(net: nn.Module, name: str, module: nn.Module) -> None:
    """Replace a module by its name, wherever the network has it."""
    replaced = net.get_submodule(name)
    for parent in list(net.modules()):
        for key, child in list(parent._modules.items()):
            if child is replaced:
                setattr(parent, key, module)


def _within(name: str, modules: Sequence[str]) -> bool:
    """Whether a tensor or module belongs to one of the modules."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)
