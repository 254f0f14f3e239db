"""Inferring which ResNet a state dict holds from its keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rcil.core.errors import CheckpointError
from rcil.model.architecture import BOTTLENECK, RESNET_BLOCKS

Blocks = tuple[int, int, int, int]


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
