"""What checks find, as data; text, JSON and HTML are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["proved", "measured"]


@dataclass(frozen=True)
class Item:
    """One thing that was checked."""

    key: str
    """Short and stable, for JSON, for example `graph`."""
    title: str
    passed: bool | None
    """None: it could not be checked here, or it was measured and is undecided; `measured` says why."""
    measured: str
    required: str
    detail: dict[str, Any] = field(default_factory=dict)
    """Numbers behind it, JSON-ready."""
    kind: Kind | None = None
    """`proved`: it follows for every image from what was compared. `measured`: it was seen here, on these runs."""
    undecided: bool = False
    """It was measured, and the measurement shows neither that it holds nor that it does not."""

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "key": self.key,
            "title": self.title,
            "passed": self.passed,
            "measured": self.measured,
            "required": self.required,
            **({"kind": self.kind} if self.kind is not None else {}),
            **({"undecided": True} if self.undecided else {}),
            **({"detail": self.detail} if self.detail else {}),
        }


@dataclass(frozen=True)
class Result:
    """A group of checks, for example the outputs of two artefacts or the zero-cost certificate."""

    key: str
    title: str
    items: tuple[Item, ...]
    sha256: dict[str, str] = field(default_factory=dict)
    """Whole hashes of the files that this is about, by what they are, for example `model` and `checkpoint`."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed; what could not be checked or decided does not count."""
        return all(item.passed is not False for item in self.items)

    @property
    def undecided(self) -> tuple[Item, ...]:
        """What was measured without a verdict."""
        return tuple(item for item in self.items if item.undecided)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "key": self.key,
            "title": self.title,
            "ok": self.ok,
            **({"sha256": self.sha256} if self.sha256 else {}),
            "items": [item.as_document() for item in self.items],
        }
