"""Factory of the conv+norm units of a network, which backbones and heads are built from."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from rcil.nn.units.convnorm import ConvNorm, ConvSum
from rcil.nn.units.norms import as_float32, make_norm
from rcil.nn.units.plain import Activation, PlainLayers, with_bias
from rcil.nn.units.rc import RCConv, make_mix

if TYPE_CHECKING:
    from rcil.model.architecture import RC, Architecture, BranchForm, NormKind, Stage


@dataclass(frozen=True)
class Layers:
    """The conventions of one network: norm, activation slope, RC state."""

    norm: NormKind
    slope: float
    rc: RC | None
    eps: float = 1e-5

    @classmethod
    def of(cls, arch: Architecture, stage: Stage, *, eps: float = 1e-5) -> AnyLayers:
        """The conventions of a stage of `arch`; a folded network has neither norms nor a second branch."""
        if arch.folded:
            return PlainLayers(arch.slope)
        has_rc = arch.rc is not None and stage in arch.rc.stages
        return cls(arch.norm, arch.slope, arch.rc if has_rc else None, eps)

    def plain(self, conv: nn.Conv2d, act: Activation | None = None) -> ConvNorm:
        """Conv -> norm -> activation, one branch."""
        return ConvNorm(conv, self._norm_before(act, conv.out_channels), self._activation(act, after_norm=True))

    def rc_conv(self, conv: nn.Conv2d, act: Activation | None = None) -> RCConv | ConvNorm:
        """An RC block if the network has RC, otherwise `plain`; the second conv has its own random weights."""
        if self.rc is None:
            return self.plain(conv, act)
        other = copy.deepcopy(conv)
        other.reset_parameters()
        after = self.rc.norm_after
        return RCConv(
            conv if after else self._branch(conv, self.rc.old),
            other if after else self._branch(other, self.rc.new),
            make_mix(self.rc, conv.out_channels),
            self._activation(act, after_norm=after),
            norm=self._norm_before(act, conv.out_channels) if after else None,
            frozen=self.rc.frozen,
        )

    def conv_sum(self, left: nn.Conv2d, right: nn.Conv2d) -> ConvSum:
        """The normalised sum of two convs."""
        return ConvSum(left, right, self.norm_over(left.out_channels))

    def norm_over(self, channels: int, *, slope: float | None = None) -> nn.Module:
        """A norm with this network's conventions; `slope` as in `make_norm`."""
        return make_norm(self.norm, channels, eps=self.eps, slope=slope)

    def _norm_before(self, act: Activation | None, channels: int) -> nn.Module:
        """The norm in front of an activation, which inplace-ABN contains."""
        return self.norm_over(channels, slope=self.slope if act == "leaky" else None)

    def _branch(self, conv: nn.Conv2d, form: BranchForm) -> ConvNorm | nn.Conv2d:
        if form == "norm":
            return ConvNorm(conv, self.norm_over(conv.out_channels))
        return with_bias(conv)

    def _activation(self, act: Activation | None, *, after_norm: bool) -> nn.Module | None:
        if act is None:
            return None
        # inplace-ABN keeps its output for the backward pass, so the activation must not overwrite it.
        after_abn = after_norm and self.norm == "inplace"
        if act == "relu6":
            return nn.ReLU6(inplace=not after_abn)
        return nn.LeakyReLU(as_float32(self.slope) if after_abn else self.slope, inplace=not after_abn)


AnyLayers = Layers | PlainLayers
