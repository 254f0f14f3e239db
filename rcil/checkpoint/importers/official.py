"""Checkpoints of the official RCIL code (two branches) and of PLOP and MiB (one branch).

The network is the same under other names (see `_KEYS`). From step 1 on the official code keeps the merged branch as a
conv with bias plus an identity norm. That norm, including its eps, is absorbed here, and the branch is one conv.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rcil import defaults
from rcil.checkpoint.file import check_tensors, convert_norms
from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil.data.class_names import published_colours
from rcil.model.architecture import BOTTLENECK, RC, RESNET_BLOCKS, Architecture, NormKind
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil.nn.build import build, build_form
from rcil.nn.segmenter import Segmenter

EPS = 1e-5
OFFICIAL_DROP = 0.33
ASPP_PATHS = 4
Blocks = tuple[int, int, int, int]
# Patterns of official names (without `_new`) and the unit of ours that they belong to.
_KEYS: tuple[tuple[str, str], ...] = (
    (r"body\.mod1\.(conv|bn)1", r"backbone.stem"),
    (r"body\.mod(?P<mod>\d)\.block(?P<block>\d+)\.convs\.(conv|bn)(?P<n>\d)", r"backbone.stages.{mod}.{block}.conv{n}"),
    (r"body\.mod(?P<mod>\d)\.block(?P<block>\d+)\.proj_(conv|bn)", r"backbone.stages.{mod}.{block}.shortcut"),
    (r"head\.map_convs\.(?P<path>\d)", r"head.paths.{path}"),
    (r"head\.global_pooling_(conv|bn)", r"head.pool"),
)
_PROJECT = {
    "head.red_conv.weight": "head.project.left.weight",
    "head.pool_red_conv.weight": "head.project.right.weight",
}


class Shape(NamedTuple):
    """What the keys and shapes of a checkpoint reveal about its network."""

    bottleneck: bool
    blocks: Blocks
    width: int
    head_width: int
    rc: Literal["none", "step0", "later"]
    classes: tuple[int, ...]
    """Rows of each step's classifier."""


def shape_of(tensors: dict[str, Tensor], source: Path) -> Shape:
    """Infer the architecture; raises if a tensor is missing."""
    try:
        steps = sorted({int(m[1]) for key in tensors if (m := re.match(r"cls\.(\d+)\.weight", key))})
        if not steps or steps != list(range(len(steps))):
            raise KeyError("cls.0.weight")
        two_branches = "head.map_bn_new.weight" in tensors
        merged = "head.map_convs.0.bias" in tensors
        return Shape(
            bottleneck="body.mod2.block1.convs.conv3.weight" in tensors,
            blocks=count_blocks(tensors, r"body\.mod([2-5])\.block(\d+)\.", source),
            width=tensors["body.mod1.conv1.weight"].shape[0],
            head_width=tensors["head.red_conv.weight"].shape[0],
            rc="none" if not two_branches else "later" if merged else "step0",
            classes=tuple(tensors[f"cls.{step}.weight"].shape[0] for step in steps),
        )
    except KeyError as error:
        raise CheckpointError(
            f"{source} looks like an official checkpoint but lacks {error}", "Give the file that the training saved."
        ) from error


def architecture_of(shape: Shape, output_stride: int, pool_window: int | None, norm: NormKind) -> Architecture:
    """The architecture. Single-branch code has an activation after the stem; the official RCIL code does not."""
    later = shape.rc == "later"
    rc = RC(drop=OFFICIAL_DROP, old="merged" if later else "norm", frozen=later)
    return Architecture.model_validate(
        {
            **resnet_fields(shape.blocks, shape.bottleneck),
            "width": shape.width,
            "head_width": shape.head_width,
            "output_stride": output_stride,
            "norm": norm,
            "stem_activation": shape.rc == "none",
            "pool_window": pool_window,
            "rc": None if shape.rc == "none" else rc.model_dump(),
        }
    )


def segmenter_of(
    tensors: dict[str, Tensor],
    source: Path,
    *,
    names: Sequence[str] | None = None,
    output_stride: int = defaults.OUTPUT_STRIDE,
    pool_window: int | None = defaults.POOL_WINDOW,
    norm: NormKind = defaults.NORM,
) -> tuple[Segmenter, Metadata]:
    """The network in an official checkpoint, in evaluation mode, and its description; arguments as `import_file`."""
    shape = shape_of(tensors, source)
    arch = architecture_of(shape, output_stride, pool_window, norm)
    steps = _names_by_step(shape.classes, names, source)
    state = translate(tensors)
    if shape.rc == "later":
        state = _absorb_frozen_norms(state)  # first: it reads inplace-ABN's weights
    state = convert_norms(state, "abs", norm, eps=EPS)
    form = build_form(arch, steps).state_dict()  # compared before memory is allocated for the network
    expected = {key: value for key, value in form.items() if not key.endswith("num_batches_tracked")}
    check_tensors(expected, state, source, "Give the file that the training saved, unchanged.")
    model = build(arch, steps)
    model.load_state_dict(state, strict=False)
    step = len(steps) - 1
    lineage = LineageEntry(
        step=step,
        source=f"import of {source.name}",
        parent_sha256=sha256_of(source),
        versions={"torch": torch.__version__},
    )
    metadata = Metadata(
        architecture=arch,
        classes=class_table(steps, published_colours),
        method="single-branch (MiB, PLOP)" if shape.rc == "none" else "rcil-official",
        step=step,
        lineage=(lineage,),
    )
    return model.eval(), metadata


def translate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate official names to ours; every branch is conv + norm."""
    two_branches = "head.map_bn_new.weight" in tensors
    state: dict[str, Tensor] = {}
    for key, value in tensors.items():
        if key.endswith("num_batches_tracked"):
            continue
        if match := re.fullmatch(r"head\.map_bn(_new)?\.(\w+)", key):
            for path, part in enumerate(value.chunk(ASPP_PATHS)):
                branch = _branch(bool(match[1]), two_branches)
                state[f"head.paths.{path}{branch}.norm.{match[2]}"] = part
        elif key.startswith("head.red_bn."):
            state[key.replace("head.red_bn", "head.project.norm")] = value
        elif key.startswith("cls."):
            state[key.replace("cls.", "classifier.groups.")] = value
        else:
            state[_PROJECT.get(key) or _translate_unit(key, two_branches, tensors)] = value
    return state


def _translate_unit(key: str, two_branches: bool, tensors: dict[str, Tensor]) -> str:
    """The name of one tensor of a conv + norm unit."""
    stem, field = key.rsplit(".", 1)
    is_new = "_new" in stem
    plain = stem.replace("_new", "")
    for pattern, name in _KEYS:
        if match := re.fullmatch(pattern, plain):
            groups = match.groupdict()
            if "mod" in groups:
                groups |= {"mod": str(int(groups["mod"]) - 2), "block": str(int(groups["block"]) - 1)}
            part = "norm" if re.search(r"bn\d?$", plain) else "conv"
            paired = two_branches and (is_new or _twin_of(plain) in tensors)
            return f"{name.format(**groups)}{_branch(is_new, paired)}.{part}.{field}"
    return key  # unknown keys are reported by check_tensors


def _twin_of(plain: str) -> str:
    """The key of the second branch's weight, if the unit `plain` has two."""
    if plain.startswith("head.map_convs."):
        return plain.replace("map_convs", "map_convs_new") + ".weight"
    return f"{plain}_new.weight"


def _branch(is_new: bool, paired: bool) -> str:
    return "" if not paired else ".new" if is_new else ".old"


def _absorb_frozen_norms(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """`X.old.conv` + `X.old.norm` -> one conv `X.old`."""
    result = {key: value for key, value in state.items() if ".old." not in key}
    for key in state:
        if not key.endswith(".old.conv.weight"):
            continue
        base = key.removesuffix(".conv.weight")
        read = {
            name: state[f"{base}.norm.{name}"].double() for name in ("weight", "bias", "running_mean", "running_var")
        }
        scale = (read["weight"].abs() + EPS) / torch.sqrt(read["running_var"] + EPS)
        bias = state[f"{base}.conv.bias"].double()
        result[f"{base}.weight"] = (state[key].double() * scale.view(-1, 1, 1, 1)).float()
        result[f"{base}.bias"] = (scale * (bias - read["running_mean"]) + read["bias"]).float()
    return result


def _names_by_step(sizes: tuple[int, ...], names: Sequence[str] | None, source: Path) -> list[list[str]]:
    total = sum(sizes)
    if names is None:
        names = ["background", *(f"class_{index}" for index in range(1, total))]
    if len(names) < total:
        raise CheckpointError(
            f"{source} has {total} classes but only {len(names)} names were given", "Name every class, in row order."
        )
    start, steps = 0, []
    for size in sizes:
        steps.append(list(names[start : start + size]))
        start += size
    return steps


def count_blocks(keys: Iterable[str], pattern: str, source: Path) -> Blocks:
    """Blocks of each of the four stages; `pattern` captures a stage and a block in a key, `source` names the file."""
    found: dict[str, set[str]] = {}
    for key in keys:
        if match := re.match(pattern, key):
            found.setdefault(match[1], set()).add(match[2])
    if len(found) != 4:
        raise CheckpointError(
            f"{source} has {len(found)} of the four stages of a ResNet", "Give the whole, unchanged file."
        )
    first, second, third, fourth = (len(found[stage]) for stage in sorted(found))
    return first, second, third, fourth


def resnet_fields(blocks: Blocks, bottleneck: bool) -> dict[str, object]:
    """The `backbone` and `blocks` of an architecture with these stages."""
    names = [name for name in RESNET_BLOCKS if (name in BOTTLENECK) == bottleneck]
    for name in names:
        if RESNET_BLOCKS[name] == blocks:
            return {"backbone": name, "blocks": None}
    return {"backbone": names[0], "blocks": blocks}
