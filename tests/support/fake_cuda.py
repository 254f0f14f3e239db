"""CUDA without a GPU: networks run on fake tensors, which have a device, a dtype and a shape but no numbers.

`fake_cuda` makes "cuda" usable, refuses what a GPU refuses (tensors of two devices or of two dtypes in one kernel) and
records every time that the host would wait for the GPU.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from rcil.losses import pcd

aten = torch.ops.aten
SELECTING = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.bincount.default}
"""Their result has a size that only the GPU knows, or they look at their values to check them."""
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
COPYING = {aten._to_copy.default, aten.copy_.default}
MULTIPLYING = {
    aten.convolution.default,
    aten.convolution_backward.default,
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.lerp.Tensor,
}
"""Kernels that take one dtype; fake tensors do not check it for all of them."""


class Watch(TorchDispatchMode):
    """Sees every kernel: checks its inputs and counts the times that the host waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        """Convolutions and products on each device: where a run really computes."""
        self.pinned: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_gpu = any(t.device.type == "cuda" for t in tensors)
        if func is aten._pin_memory.default:
            pinned = args[0].clone()
            self.pinned[pinned] = True
            return pinned
        if func in COPYING:
            self._copy(func, args, kwargs)
            _forget_values(tensors)
            return func(*args, **kwargs)
        if func in MULTIPLYING:
            self.kernels["cuda" if on_gpu else "cpu"] += 1
        if on_gpu:
            _check_devices(func, tensors)
            _check_dtypes(func, tensors)
        if func is aten._local_scalar_dense.default:
            self.waits["item"] += on_gpu
            known = getattr(args[0], "constant", None)
            return _number(args[0].dtype) if known is None else known.item()
        if func is aten.equal.default and on_gpu:
            self.waits["equal"] += 1
            return False
        if func in SELECTING:
            self.waits[func._opname] += on_gpu
            return _selected(func, args)
        if func in INDEXING and (masks := [i for i in args[1] if _is_mask(i)]):
            self.waits["mask"] += any(mask.device.type == "cuda" for mask in masks)
            args = (args[0], _without_masks(args[1]), *args[2:])
        return func(*args, **kwargs)

    def _copy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A copy between host and GPU waits, unless it was asked not to and the host's side is pinned memory."""
        if func is aten.copy_.default:
            source, target = args[1], args[0].device
            asked = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        else:
            source, target = args[0], torch.device(kwargs.get("device") or args[0].device)
            asked = kwargs.get("non_blocking", False)
        if {target.type, source.device.type} == {"cpu", "cuda"}:
            to_host = target.type == "cpu"
            self.waits["to host" if to_host else "from host"] += not (asked and (to_host or source in self.pinned))


def _forget_values(tensors: list[Tensor]) -> None:
    """Fake tensors remember a number that was just written in Python, and would really copy it to the GPU."""
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            tensor.constant = None


def _check_devices(func: Any, tensors: list[Tensor]) -> None:
    """One device for all; single numbers of the host are passed by value."""
    found = {str(t.device) for t in tensors if t.dim() or t.device.type != "cpu"}
    assert len(found) <= 1, f"{func} got tensors on {sorted(found)}"


def _check_dtypes(func: Any, tensors: list[Tensor]) -> None:
    found = {t.dtype for t in tensors if t.is_floating_point()}
    assert func not in MULTIPLYING or len(found) == 1, f"{func} got {sorted(map(str, found))}"


def _number(dtype: torch.dtype) -> bool | int | float:
    """What a fake tensor holds where somebody asks."""
    if dtype == torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 1


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _count(mask: Tensor) -> int:
    """How many values a mask is taken to select."""
    return max(1, mask.numel() // 2)


def _without_masks(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The places that a mask selects, one index for each of its axes."""
    places: list[Tensor | None] = []
    for index in indices:
        if index is not None and _is_mask(index):
            places += [index.new_empty(_count(index), dtype=torch.int64) for _ in range(index.dim())]
        else:
            places.append(index)
    return places


def _selected(func: Any, args: tuple[Any, ...]) -> Any:
    x = args[0]
    if func is aten.bincount.default:
        return x.new_empty(max(1, args[2] if len(args) > 2 else 0), dtype=torch.int64)
    if func is aten.masked_select.default:
        return x.new_empty(_count(args[1]))
    places = x.new_empty((_count(x), x.dim()), dtype=torch.int64)
    return places if func is aten.nonzero.default else (x.new_empty(_count(x)), places[:, 0], places[:, 0])


def _tolist(tensor: FakeTensor) -> Any:
    """All numbers in one copy; torch's own version asks for one at a time."""
    values = tensor.cpu()
    return np.full(tuple(values.shape), _number(values.dtype)).tolist()


def _numpy(tensor: FakeTensor) -> np.ndarray[Any, Any]:
    assert tensor.device.type == "cpu", "a tensor of the GPU has no numpy array"
    return np.zeros(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _new_tensor(tensor: FakeTensor, value: Any) -> Tensor:
    """As on a GPU: the number is written on the host and copied."""
    return torch.tensor(value, dtype=tensor.dtype).to(tensor.device)


def _deepcopy(tensor: FakeTensor, memo: dict[int, Any]) -> Tensor:
    """torch's own version reads the data pointer, which fake tensors do not have."""
    if id(tensor) not in memo:
        with torch.no_grad():
            copied = tensor.detach().clone()
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(copied, tensor.requires_grad) if is_parameter else copied
    return memo[id(tensor)]  # type: ignore[no-any-return]


def _apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """`nn.Module._apply` for fake parameters, which cannot be swapped in place."""
    for child in module.children() if recurse else ():
        child._apply(fn)
    for key, parameter in module._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                module._parameters[key] = nn.Parameter(fn(parameter), parameter.requires_grad)
    for key, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[key] = fn(buffer)
    return module


@contextlib.contextmanager
def fake_cuda() -> Iterator[Watch]:
    """Inside, all tensors are fake and "cuda" is a device; gives what has been counted. See `fake_device`."""
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (FakeTensor, "tolist", _tolist),
            (FakeTensor, "numpy", _numpy),
            (FakeTensor, "new_tensor", _new_tensor),
            (FakeTensor, "__deepcopy__", _deepcopy),
            (FakeTensorMode, "avoid_device_init", True),
            (nn.Module, "_apply", _apply),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "_exchange_device", lambda index: 0),
            (torch.cuda, "_maybe_exchange_device", lambda index: 0),
            (torch.cuda, "is_bf16_supported", lambda: True),
            (torch.cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state()),
            (torch.cuda, "set_rng_state", lambda state, device="cuda": None),
        ):
            stack.enter_context(mock.patch.object(place, name, value, create=True))
        for cached in (pcd._axis_gram, pcd._pixel_kernels):  # fake tensors must not outlive their mode
            cached.cache_clear()
            stack.callback(cached.cache_clear)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield stack.enter_context(Watch())
