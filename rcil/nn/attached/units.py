"""Which convs of a watched network can have branches, and which norms belong to them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from rcil.model.attached import Unit
from rcil.nn.attached.dataflow import Call, Flow

TOLERANCE = 1e-9
"""Largest error, as a share of the largest value, of what must be equal in float64."""


def find_units(flow: Flow, net: nn.Module, without: Collection[str], trained: Collection[str]) -> tuple[Unit, ...]:
    """All convs that can be units, with their norms, in the order of execution.

    Left alone are the convs that `problem_of` finds a problem with. Branches are for kernels above 1x1, as in the
    paper, except for the conv that reads the image; if there is no such conv, 1x1 convs get them.

    Args:
        flow: One pass of the network.
        net: The network.
        without: Convs that are no units: those of the classifier.
        trained: Names of the parameters that the logits depend on; other convs get no branches.
    """
    calls = _calls(flow)
    norms = {id(call.inputs[0]): call for call in flow.calls_of(nn.Module) if _is_norm(call)}
    found: list[tuple[Call, Call | None]] = []
    for call in flow.calls_of(nn.Conv2d):
        if call.name not in without and problem_of(call, flow, calls) is None:
            norm = norms.get(id(call.output))
            alone = norm is not None and calls[id(norm.module)] == 1
            found.append((call, norm if norm is not None and alone and _belongs(call, norm, flow) else None))
    chosen = _with_branches([call for call, _ in found if f"{call.name}.weight" in trained], flow)
    units = (Unit(conv=c.name, norm=n.name if n is not None else None, rc=c.name in chosen) for c, n in found)
    return tuple(unit for unit in units if unit.rc or unit.norm is not None)


def _with_branches(calls: list[Call], flow: Flow) -> set[str]:
    """Names of the convs that get a second branch."""
    convs = [(call, call.module) for call in calls if isinstance(call.module, nn.Conv2d)]
    first = next((call.name for call in flow.calls_of(nn.Conv2d)), None)
    large = {call.name for call, conv in convs if max(conv.kernel_size) > 1}
    return (large - {first}) or large or {call.name for call in calls}


def _calls(flow: Flow) -> Counter[int]:
    """How often every module runs, by its id."""
    return Counter(id(call.module) for call in flow.calls)


def problem_of(call: Call, flow: Flow, calls: Mapping[int, int]) -> str | None:
    """Why a conv cannot be a unit: it must have a kernel of its own, run once, and be linear in its kernel."""
    conv = call.module
    assert isinstance(conv, nn.Conv2d)
    if calls[id(conv)] > 1:
        return "runs several times"
    if parametrize.is_parametrized(conv) or conv._forward_hooks or conv._forward_pre_hooks:
        return "is changed by hooks or parametrisations"
    if call.output is None or len(call.inputs) != 1:
        return "is not called with one tensor alone, as in conv(x)"
    if not _owns_parameters(call, flow):
        return "shares its kernel with another module"
    if type(conv) is not nn.Conv2d and not is_linear(conv, call.inputs[0]):
        return f"is a {type(conv).__name__}, whose output is not linear in its kernel"
    return None


def why_no_branches(flow: Flow, without: Collection[str], trained: Collection[str]) -> str:
    """The reason for the first conv that gets no branches, for an error message."""
    calls = _calls(flow)
    for call in flow.calls_of(nn.Conv2d):
        if call.name not in without:
            reason = problem_of(call, flow, calls)
            if reason is None and f"{call.name}.weight" not in trained:
                reason = "takes no gradient from the logits"
            return f": '{call.name}' {reason or 'does not run as a part of its module'}"
    return ""


def _owns_parameters(call: Call, flow: Flow) -> bool:
    """Whether the weights are plain parameters that no other operation reads."""
    parameters = list(call.module.parameters())
    plain = isinstance(getattr(call.module, "weight", None), nn.Parameter)
    return plain and all(p.is_floating_point() and flow.is_read_only_by(p, call) for p in parameters)


@torch.no_grad()
def is_linear(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether the output of a subclass of `Conv2d` is linear in its kernel, and adds its bias per channel."""
    one = copy.deepcopy(conv).double()
    x = x[:1].double()
    generator = torch.Generator().manual_seed(0)
    kernels = [torch.randn(one.weight.shape, generator=generator, dtype=torch.float64).to(x.device) for _ in range(2)]

    def output(kernel: Tensor, bias: float) -> Tensor:
        one.weight.copy_(kernel)
        if one.bias is not None:
            one.bias.fill_(bias)
        result: Tensor = one(x)
        return result

    total = output(kernels[0] + kernels[1], 1.0)
    parts = output(kernels[0], 0.0) + output(kernels[1], 0.0) + (1.0 if one.bias is not None else 0.0)
    return bool((total - parts).abs().max() <= TOLERANCE * total.abs().max().clamp(min=1))


def _is_norm(call: Call) -> bool:
    return len(call.inputs) == 1 and split_norm(call.module) is not None


def _belongs(conv: Call, norm: Call, flow: Flow) -> bool:
    """Whether a norm is the only reader of a conv, and has its parameters to itself."""
    assert conv.output is not None
    readers = flow.readers[id(conv.output)]
    mine = all(flow.is_read_only_by(p, norm) for p in norm.module.parameters())
    # a reader inside the conv itself would have changed its output in place
    return mine and all(norm.first <= index < norm.end for index in readers if index >= conv.end)


def split_norm(module: nn.Module) -> tuple[nn.BatchNorm2d, nn.Module] | None:
    """A batch norm that can be folded, and what its module does after it; None for anything else.

    Some libraries have one module for norm and activation. The norm shares its tensors with the module.
    """
    if not isinstance(module, nn.BatchNorm2d | nn.SyncBatchNorm) or not module.affine or module.running_mean is None:
        return None
    if module._forward_hooks or module._forward_pre_hooks or parametrize.is_parametrized(module):
        return None
    if type(module) is nn.BatchNorm2d:
        return module, nn.Identity()
    norm = plain_norm(module)
    if type(module) is nn.SyncBatchNorm:
        return norm, nn.Identity()
    after = [part for _, part in module.named_children() if not isinstance(part, nn.Identity)]
    rest: nn.Module = nn.Identity() if not after else after[0] if len(after) == 1 else nn.Sequential(*after)
    return (norm, rest) if _same(module, nn.Sequential(norm, rest)) else None


def plain_norm(module: nn.BatchNorm2d | nn.SyncBatchNorm) -> nn.BatchNorm2d:
    """The batch norm in a module, as torch's own layer with the same parameters and buffers."""
    norm = nn.BatchNorm2d(module.num_features, module.eps, module.momentum).train(module.training)
    norm.weight, norm.bias = module.weight, module.bias
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        norm.register_buffer(name, getattr(module, name))
    return norm


@torch.no_grad()
def _same(a: nn.Module, b: nn.Module) -> bool:
    """Whether two modules with norms compute the same in evaluation mode."""
    channels = next(a.parameters()).shape[0]
    a, b = copy.deepcopy(a).double().eval(), copy.deepcopy(b).double().eval()
    x = torch.randn(2, channels, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        first, second = a(x.clone()), b(x.clone())
    except (RuntimeError, TypeError, ValueError):
        return False
    return first.shape == second.shape and bool((first - second).abs().max() <= TOLERANCE * first.abs().max())
