"""What checks find, as data; text, JSON and HTML are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["proved", "measured"]

FOR_INFORMATION = "for information"
"""What an item requires that only tells something."""


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
    warning: bool = False
    """Nothing is proved wrong, but a person should look at it; `passed` is None."""

    @property
    def not_checked(self) -> bool:
        """Whether something that should have been checked was not; what is told for information does not count."""
        return self.passed is None and not (self.warning or self.undecided) and self.required != FOR_INFORMATION

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
            **({"warning": True} if self.warning else {}),
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

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "key": self.key,
            "title": self.title,
            "ok": self.ok,
            **({"sha256": self.sha256} if self.sha256 else {}),
            "items": [item.as_document() for item in self.items],
        }
