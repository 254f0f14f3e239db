"""The plan that `--dry-run` reports after the same checks as a real run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DryRun:
    """What a run would read, write and need. Keys are files or subjects; values are remarks and may be empty."""

    reads: Mapping[str, str]
    writes: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)
