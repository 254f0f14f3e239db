"""Pooled Cube Distillation: the distance of squared feature maps after average pooling in space and along channels.

https://arxiv.org/abs/2203.05402

The definition pools the squares of both maps with six windows of up to 24 x 24 pixels. It is made cheap as follows:

- Pooling is linear, so only d = new² - old² is pooled. It is evaluated as (new - old) * (new + old), which keeps
  its digits where the two maps are nearly equal.
- Pooling is separable. With P the 1-D pooling matrix of an axis and G = P'P, the squared norm of the pooled map is
  <G_h d G_w, d>: two small matrix products per window, whose cost does not depend on the window. G holds whole
  numbers (the scale is applied to the norm), which costs nothing and makes cancellation inside a window exact.
- The same product is, up to a factor, the gradient. It is accumulated in the forward pass and is the only map that is
  kept for the backward pass; no pooled map is stored.
- On small maps the Gram matrix M of the pixels (summed over channels) serves all windows at once: each squared norm
  is <G_h ⊗ G_w, M>, and the gradients of all windows are one product with a weighted sum of the kernels. Only a CPU
  uses this, because the precision of M must be checked, which would synchronise a GPU with the host.

There are no cumulative sums: a pooled value depends on the pixels of its own window only, so precision is not lost
across a large map or next to an outlier. Squared norms are summed in float64. On CUDA leave
`torch.backends.cuda.matmul.allow_tf32` off (the default): its ten bits are too few for squared features.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rcil.core.errors import ConfigError, did_you_mean
from rcil.losses.maps import class_schedule, matched, mean_of_layers, paired
from rcil.losses.precision import full_precision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

Padding = Literal["half", "valid"]

WINDOWS: Final = (4, 8, 12, 16, 20, 24)

_CACHED = 1 << 20  # map values that fit into a CPU cache with their work space; measured
_CANCELLED = 0.1  # share of a squared norm below which pooling counts as cancelling the map


class PcdFactors(NamedTuple):
    """Weights of `pcd_official`, each as (every map but the last, the last map)."""

    spatial: tuple[float, float]
    channel: tuple[float, float]


PCD_FACTORS: Final[Mapping[str, PcdFactors]] = {
    "voc": PcdFactors((1e-2, 5e-4), (1e-2, 5e-4)),
    "cityscapes": PcdFactors((1e-2, 5e-4), (1e-2, 5e-4)),
    "ade": PcdFactors((5e-6, 5e-7), (5e-6, 5e-7)),
    "cityscapes_domain": PcdFactors((5e-4, 1e-4), (1e-4, 0.0)),
}
"""Factors of the official code per benchmark."""


@full_precision
def spatial_distance(new: Tensor, old: Tensor, windows: Sequence[int] = WINDOWS, padding: Padding = "half") -> Tensor:
    """Distance of two maps [N, C, H, W] after squaring and pooling in space, a scalar.

    Per sample the L2 norm of the difference of the stride-1 average pools; mean over samples, mean over windows.

    Args:
        new: The student's map. Extra channels are summed into the first, see `fold_new_channels`.
        old: The teacher's map.
        windows: Sides of the square windows.
        padding: "half" pads with window // 2 zeros that count in the mean (official code); "valid" does not pad,
            and a window larger than the map is clipped to it (the paper's text).
    """
    return _spatial(_difference_of_squares(*matched(new, old)), tuple(windows), padding)


@full_precision
def channel_distance(new: Tensor, old: Tensor, width: int = 3, padding: Padding = "half") -> Tensor:
    """Distance of two maps [N, C, H, W] after squaring and pooling along the channels, a scalar.

    Args:
        new: The student's map. Extra channels are summed into the first, see `fold_new_channels`.
        old: The teacher's map.
        width: Channels per window.
        padding: As in `spatial_distance`, along the channel axis.
    """
    return _channel(_difference_of_squares(*matched(new, old)), width, padding)


@full_precision
def pcd_paper(new_maps: Sequence[Tensor], old_maps: Sequence[Tensor], gamma: float = 0.01) -> Tensor:
    """The paper's gamma * (L_skd + L_ckd): unpadded pooling, mean over maps, one factor.

    Args:
        new_maps: The student's maps [N, C, H, W]: four stages and the decoder.
        old_maps: The teacher's maps of the same layers.
        gamma: Weight of both terms.
    """
    distances = []
    for new, old in paired(new_maps, old_maps):
        squares = _difference_of_squares(new, old)
        distances.append(_spatial(squares, WINDOWS, "valid") + _channel(squares, 3, "valid"))
    return gamma * torch.stack(distances).mean()


@full_precision
def pcd_official(
    new_maps: Sequence[Tensor],
    old_maps: Sequence[Tensor],
    *,
    classes: int,
    new_classes: int,
    spatial_factors: tuple[float, float] = PCD_FACTORS["voc"].spatial,
    channel_factors: tuple[float, float] = PCD_FACTORS["voc"].channel,
) -> tuple[Tensor, Tensor]:
    """The spatial and the channel term of the official code, both times sqrt(classes / new_classes).

    Args:
        new_maps: The student's maps [N, C, H, W]: four stages, the decoder, and last the low-resolution logits.
            The channel term leaves the logits out, so its last map is the decoder.
        old_maps: The teacher's maps of the same layers.
        classes: All classes so far, background and this step's included.
        new_classes: Classes this step adds; equal to `classes` when only the domain changes.
        spatial_factors: Factor of every map but the last, and of the last; see `PCD_FACTORS`.
        channel_factors: The same for the channel term.
    """
    pairs = paired(new_maps, old_maps)
    if len(pairs) < 2:
        raise ConfigError("pcd_official got one map", "Pass the feature maps and, last, the logits.")
    schedule = class_schedule(classes, new_classes)
    spatial, channel = [], []
    for index, (new, old) in enumerate(pairs):
        squares = _difference_of_squares(new, old)
        spatial.append(_spatial(squares, WINDOWS, "half"))
        if index < len(pairs) - 1:
            channel.append(_channel(squares, 3, "half"))
    return (
        mean_of_layers(spatial, *spatial_factors, schedule),
        mean_of_layers(channel, *channel_factors, schedule),
    )


def _difference_of_squares(new: Tensor, old: Tensor) -> Tensor:
    """new² - old² [N, C, H, W]."""
    return _apply(_DifferenceOfSquares, new, old)


def _spatial(squares: Tensor, windows: tuple[int, ...], padding: Padding) -> Tensor:
    """Mean over windows and samples of the norm of the pooled map."""
    if not windows:
        raise ConfigError("no pooling window given", "Pass at least one, for example windows=(4, 8).")
    for window in windows:
        _check(window, padding)
    return _apply(_SpatialNorm, squares, windows, padding)


def _channel(squares: Tensor, width: int, padding: Padding) -> Tensor:
    """Mean over samples of the norm of the map pooled along its channels."""
    _check(width, padding)
    return _apply(_ChannelNorm, squares, width, padding)


def _apply(function: type[Function], *args: object) -> Tensor:
    """The function's result; torch leaves `apply` untyped."""
    return cast("Tensor", function.apply(*args))  # type: ignore[no-untyped-call]


def _check(window: int, padding: Padding) -> None:
    if window < 1:
        raise ConfigError(f"a pooling window of {window}", "Windows are at least 1.")
    if padding not in ("half", "valid"):
        raise ConfigError(f"unknown padding '{padding}'", did_you_mean(padding, ("half", "valid")))


def _fit(size: int, window: int, padding: Padding) -> tuple[int, int, int]:
    """Window, padding before the axis, and number of pooled values along an axis of `size`."""
    if padding == "valid":
        window = min(window, size)
        return window, 0, size - window + 1
    before = window // 2
    return window, before, size + 2 * before - window + 1


class _DifferenceOfSquares(Function):
    """new² - old², keeping references to its inputs only (plain autograd would keep their sum and difference)."""

    @staticmethod
    def forward(ctx: Any, new: Tensor, old: Tensor) -> Tensor:
        ctx.save_for_backward(new, old)
        return (new - old).mul_(new + old)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        new, old = ctx.saved_tensors
        needs_new, needs_old = ctx.needs_input_grad
        return (grad * new).mul_(2) if needs_new else None, (grad * old).mul_(-2) if needs_old else None


class _SpatialNorm(Function):
    """Scalar norm of the spatially pooled map; its gradient is computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, squares: Tensor, windows: tuple[int, ...], padding: Padding) -> Tensor:
        method = _by_pixel_gram if _is_small(squares) else _by_axis
        value, gradient = method(squares.contiguous(), windows, padding, needs_gradient=ctx.needs_input_grad[0])
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None, None


class _ChannelNorm(Function):
    """Scalar norm of the map pooled along its channels; its gradient is computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, squares: Tensor, width: int, padding: Padding) -> Tensor:
        samples, channels = squares.shape[:2]
        width, before, pooled_channels = _fit(channels, width, padding)
        gradient = torch.empty_like(squares) if ctx.needs_input_grad[0] else None
        norms = []
        for part in _chunks(squares):
            pooled = _window_sum(squares[part], width, before, pooled_channels)
            norm, weight = _norm_and_weight(_dot(pooled, pooled))
            norms.append(norm)
            if gradient is not None:
                scale = (weight / (samples * width)).to(squares.dtype).view(-1, 1, 1, 1)
                # The adjoint of a window sum is a window sum with the padding of the other side.
                torch.mul(_window_sum(pooled, width, width - 1 - before, channels), scale, out=gradient[part])
        ctx.save_for_backward(gradient)
        return torch.cat(norms).mean().div(width).to(squares.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None, None


def _chunks(squares: Tensor) -> list[slice]:
    """Parts of the batch to work on at a time.

    On a CPU as many samples as stay in cache with their work space, but at least one; on an accelerator, where every
    operation has a launch cost, all of them.
    """
    samples = len(squares)
    step = max(1, _CACHED // squares[0].numel()) if squares.device.type == "cpu" else samples
    return [slice(start, min(start + step, samples)) for start in range(0, samples, step)]


def _dot(a: Tensor, b: Tensor, work: Tensor | None = None) -> Tensor:
    """Inner product per sample [N] of two maps [N, C, H, W], summed over channels in float64."""
    return torch.mul(a, b, out=work).flatten(2).sum(dim=2).sum(dim=1, dtype=torch.float64)


def _norm_and_weight(squared: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(q) and 1 / sqrt(q), both 0 where q is not positive: identical maps have no distance and no gradient."""
    norm = squared.clamp(min=0).sqrt()
    return norm, torch.where(norm > 0, norm.reciprocal(), 0)


def _window_sum(x: Tensor, width: int, before: int, size: int) -> Tensor:
    """y[:, i] = sum over j < width of x[:, i - before + j], for i < size, zeros outside x [N, C, H, W]."""
    y = x.new_zeros((len(x), size, *x.shape[2:]))
    for shift in range(-before, width - before):
        start, stop = max(0, -shift), min(size, x.shape[1] - shift)
        if start < stop:
            y[:, start:stop] += x[:, start + shift : stop + shift]
    return y


def _is_small(squares: Tensor) -> bool:
    """Whether the pixel Gram matrix is the faster way on a CPU; break-even measured at about 18 x 18."""
    height, width = squares.shape[2:]
    return squares.device.type == "cpu" and height * width <= 9 * (height + width)


def _by_axis(
    squares: Tensor, windows: tuple[int, ...], padding: Padding, *, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Value and gradient from t = G_h d G_w per window; squared norm <t, d>, gradient t / norm."""
    samples, channels, height, width = squares.shape
    gradient = torch.zeros_like(squares) if needs_gradient else None
    norms = []
    for part in _chunks(squares):
        d = squares[part]
        rows, pooled = torch.empty_like(d), torch.empty_like(d)
        for window in windows:
            gram_h = _axis_gram(height, window, padding, d.dtype, d.device).expand(len(d) * channels, -1, -1)
            gram_w = _axis_gram(width, window, padding, d.dtype, d.device)
            torch.mm(d.view(-1, width), gram_w, out=rows.view(-1, width))
            torch.bmm(gram_h, rows.view(-1, height, width), out=pooled.view(-1, height, width))
            scale = _pool_scale(height, width, window, padding)
            norm, weight = _norm_and_weight(_dot(pooled, d, work=rows) * scale)
            norms.append(norm)
            if gradient is not None:
                weight = (weight * scale / (samples * len(windows))).to(d.dtype).view(-1, 1, 1, 1)
                gradient[part].addcmul_(pooled, weight)
    return torch.cat(norms).mean().to(squares.dtype), gradient


def _by_pixel_gram(
    squares: Tensor, windows: tuple[int, ...], padding: Padding, *, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Value and gradient from M [N, HW, HW], the inner products over channels of every two pixels."""
    samples, _, height, width = squares.shape
    pixels = squares.flatten(2)
    gram = torch.bmm(pixels.transpose(1, 2), pixels)
    kernels = _pixel_kernels(height, width, windows, padding, squares.device)
    squared = gram.flatten(1).double() @ kernels.T
    # What the squared norms would be, were the pixels uncorrelated. Far less means that pooling cancels the map, and
    # then the rounding of M shows; summing along the axes first keeps the digits.
    uncorrelated = gram.diagonal(dim1=1, dim2=2).double() @ kernels[:, :: pixels.shape[2] + 1].T
    if (squared < _CANCELLED * uncorrelated).any():
        return _by_axis(squares, windows, padding, needs_gradient=needs_gradient)
    norms, weights = _norm_and_weight(squared)
    value = norms.mean().to(squares.dtype)
    if not needs_gradient:
        return value, None
    mixed = (weights / (samples * len(windows))) @ kernels
    return value, torch.bmm(pixels, mixed.view_as(gram).to(squares.dtype)).view_as(squares)


def _pool_scale(height: int, width: int, window: int, padding: Padding) -> float:
    """Factor from the squared norm of window sums to that of window means: 1 / (pixels of the window)²."""
    return 1.0 / (_fit(height, window, padding)[0] * _fit(width, window, padding)[0]) ** 2


@functools.lru_cache(maxsize=256)
def _axis_gram(size: int, window: int, padding: Padding, dtype: torch.dtype, device: torch.device) -> Tensor:
    """P'P [size, size] of the 1-D window-sum matrix P [pooled, size]: how many windows hold both positions.

    Sums, not means: the entries are small whole numbers, exact in every dtype, so values that cancel inside a window
    (a checkerboard) cancel exactly instead of leaving the rounding of 1 / window behind.
    """
    window, before, pooled = _fit(size, window, padding)
    offset = torch.arange(size, device=device)[None, :] - torch.arange(pooled, device=device)[:, None] + before
    inside = ((offset >= 0) & (offset < window)).double()
    return (inside.T @ inside).to(dtype)


@functools.lru_cache(maxsize=8)  # up to 5 MB each; a network has two or three small sizes
def _pixel_kernels(height: int, width: int, windows: tuple[int, ...], padding: Padding, device: torch.device) -> Tensor:
    """G_h ⊗ G_w of every window [windows, (HW)²], in float64 because the squared norms are summed with them."""
    kernels = []
    for window in windows:
        gram_h = _axis_gram(height, window, padding, torch.float64, device)
        gram_w = _axis_gram(width, window, padding, torch.float64, device)
        kernels.append(torch.kron(gram_h, gram_w).flatten() * _pool_scale(height, width, window, padding))
    return torch.stack(kernels)
