"""The representation compensation block: two parallel conv+norm branches that fold into one conv.

Paper: Representation Compensation Networks for Continual Semantic Segmentation (CVPR 2022).
`old` holds what earlier steps learned and `new` is trained: x = eta * old + (1 - eta) * new, per channel, before the
activation. One norm after the sum can take the place of the norms in the branches
(QARepVGG, https://arxiv.org/abs/2212.01593).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from rcil.nn.units.convnorm import ConvNorm, LikeConv, conv_like, has_shift, kernel_of, with_activation
from rcil.nn.units.norms import affine_of, fuses_activation
from rcil.nn.units.sparse_mix import can_skip, mix_sparsely

if TYPE_CHECKING:
    from rcil.model.architecture import RC


class DropPathMix(nn.Module):
    """eta is 1, 0 or 0.5, drawn per channel and forward pass (shared by the batch); 0.5 in evaluation mode.

    Args:
        channels: Number of channels; eta is drawn for each.
        drop: Probability of eta = 1, and also of eta = 0. 1/3 makes the three values equally likely; the official code
            has 0.33. The expectation is always 0.5.
    """

    def __init__(self, channels: int, drop: float = 1 / 3) -> None:
        super().__init__()
        self.channels = channels
        self.drop = drop

    def draw(self, like: Tensor) -> Tensor:
        """Uniform random numbers [C] that select eta, the only randomness of the network."""
        return torch.rand(self.channels, device=like.device)

    def eta(self, like: Tensor) -> Tensor:
        """Weights [C] of the old branch for this pass."""
        if not self.training:
            return self.expected(like)
        r = self.draw(like)
        eta = torch.full_like(r, 0.5)
        return eta.masked_fill(r < 2 * self.drop, 0.0).masked_fill(r < self.drop, 1.0)

    def expected(self, like: Tensor) -> Tensor:
        """The exact mean of eta [C]."""
        return torch.full((self.channels,), 0.5, dtype=like.dtype, device=like.device)


class FixedMix(nn.Module):
    """eta is one number for all channels, in training and evaluation."""

    def __init__(self, channels: int, old_weight: float = 0.5) -> None:
        super().__init__()
        self.channels = channels
        self.old_weight = old_weight

    def eta(self, like: Tensor) -> Tensor:
        """Weights [C] of the old branch."""
        return torch.full((self.channels,), self.old_weight, dtype=like.dtype, device=like.device)

    expected = eta


class LearnableMix(nn.Module):
    """eta = sigmoid(a), one learned `a` per channel that starts at 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(channels))

    def eta(self, like: Tensor) -> Tensor:
        """Weights [C] of the old branch."""
        return torch.sigmoid(self.logit)

    def expected(self, like: Tensor) -> Tensor:
        """The same [C], computed in the dtype of `like`."""
        return torch.sigmoid(self.logit.to(like.dtype))


Mix = DropPathMix | FixedMix | LearnableMix


def make_mix(rc: RC, channels: int) -> Mix:
    """The mix that `rc` asks for, in its initial state."""
    match rc.mix:
        case "drop_path":
            return DropPathMix(channels, rc.drop)
        case "fixed":
            return FixedMix(channels, rc.old_weight)
        case "learnable":
            return LearnableMix(channels)


class RCConv(LikeConv):
    """Two branches of the same geometry, mixed per channel, then a norm if there is one, then the activation.

    Args:
        old: Conv + norm at step 0; from step 1 on one conv with bias, merged from both branches of the previous step.
        new: Conv + norm that is trained, or a conv with bias (see `next_step`).
        mix: How the branches are weighted.
        act: Applied to the mixed map, or after its norm.
        norm: A norm of the mixed map; both branches are then convs without norms. It is trained in every step.
        frozen: The old branch takes no gradient and never enters training mode.
    """

    def __init__(
        self,
        old: ConvNorm | nn.Conv2d,
        new: ConvNorm | nn.Conv2d,
        mix: Mix,
        act: nn.Module | None = None,
        *,
        norm: nn.Module | None = None,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.old = old
        self.new = new
        self.mix = mix
        self.norm = norm
        self.act = act
        self.frozen = frozen
        if frozen:
            self.old.requires_grad_(False).eval()

    @property
    def anchor(self) -> nn.Conv2d:
        """See `LikeConv`."""
        return self.new.conv if isinstance(self.new, ConvNorm) else self.new

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C', H', W']."""
        mixed: Tensor = self._sparsely(x) if self._skips(x) else self._densely(x)
        if self.norm is not None:
            mixed = self.norm(mixed)
            if fuses_activation(self.norm):
                return mixed
        return mixed if self.act is None else self.act(mixed)

    def _densely(self, x: Tensor) -> Tensor:
        old, new = self.old(x), self.new(x)
        eta = self.mix.eta(new).to(new.dtype).view(1, -1, 1, 1)
        return torch.lerp(new, old, eta)

    def _sparsely(self, x: Tensor) -> Tensor:
        assert isinstance(self.old, nn.Conv2d) and isinstance(self.new, ConvNorm)
        return mix_sparsely(x, self.old, self.new.conv, self.new.norm, self.mix.eta(x).to(x.dtype))

    def _skips(self, x: Tensor) -> bool:
        """Whether drop-path makes computations unnecessary: in training, with a frozen old branch."""
        if not (self.training and self.frozen and isinstance(self.mix, DropPathMix)):
            return False
        if not (isinstance(self.old, nn.Conv2d) and isinstance(self.new, ConvNorm)):
            return False
        return self.new.conv.bias is None and can_skip(self.old, x) and can_skip(self.new.conv, x)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of everything but a frozen old branch, which stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.old.eval()
        return self

    def merged(self) -> nn.Conv2d:
        """One new conv that equals the block at the expected eta, without the activation.

        It has a bias, unless there is no norm and neither branch has a bias.
        """
        weight, bias = self._mixed_kernel()
        if self.norm is not None:
            scale, shift = affine_of(self.norm)
            weight = weight * scale.view(-1, 1, 1, 1)
            bias = shift if bias is None else bias * scale + shift
        return conv_like(self.anchor, weight, bias)

    def mixed(self) -> nn.Conv2d:
        """One new conv that equals the sum of the branches at the expected eta, before the norm if one follows it."""
        return conv_like(self.anchor, *self._mixed_kernel())

    @torch.no_grad()
    def _mixed_kernel(self) -> tuple[Tensor, Tensor | None]:
        """Kernel [O, I/groups, kh, kw] and bias [O] of `mixed`, in float64."""
        (w_old, b_old), (w_new, b_new) = kernel_of(self.old), kernel_of(self.new)
        eta = self.mix.expected(w_new)  # in float64, so that rounding of the branches does not show in the sum
        column = eta.view(-1, 1, 1, 1)
        bias = eta * b_old + (1 - eta) * b_new if has_shift(self.old) or has_shift(self.new) else None
        return column * w_old + (1 - column) * w_new, bias

    def fold(self) -> nn.Module:
        """The merged conv, followed by the activation if there is one."""
        return with_activation(self.merged(), self.act)

    def remix(self, rc: RC) -> None:
        """Replace the mix by the one of `rc`; a learned mix is reset."""
        self.mix = make_mix(rc, self.anchor.out_channels).to(self.anchor.weight).train(self.training)

    def next_step(
        self, *, merge: bool = True, freeze: bool = True, preserve: bool = False, absorb: bool = False
    ) -> RCConv:
        """A new block at the start of the next step.

        A norm after the sum is not merged: it goes on with its weights and statistics, which belong to the merged conv
        as they did to both branches, so that the old branch and the norm compute together what the block did. The old
        conv is frozen, and the norm is trained on.

        Args:
            merge: Merge both branches into the old branch; otherwise the old branch stays the same.
            freeze: Freeze the old branch.
            preserve: Also start the new branch as a copy of the merged conv, so that the block computes the same as
                before for every eta. Otherwise the new branch continues from its own weights.
            absorb: Train the new branch without its norm: its conv absorbs the norm and gets a bias, and the branch
                computes what it did. An old branch that is not merged keeps its norm.
        """
        sum_of_both = self.mixed()
        old = sum_of_both if merge else copy.deepcopy(self.old)
        new = copy.deepcopy(sum_of_both if preserve else self.new)
        if absorb and isinstance(new, ConvNorm):
            new = conv_like(new.conv, *kernel_of(new))
        mix = copy.deepcopy(self.mix)
        if merge and isinstance(mix, LearnableMix):
            nn.init.zeros_(mix.logit)  # the merged conv contains the learned mix
        old.requires_grad_(True)
        norm, act = copy.deepcopy((self.norm, self.act))
        block = RCConv(old, new, mix, act, norm=norm, frozen=freeze)
        return block.train(self.training)
