"""Results of checks as data; text, JSON and HTML are rendered from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["proved", "measured"]

FOR_INFORMATION = "for information"
"""Requirement of an item that is only informative."""


@dataclass(frozen=True)
class Item:
    """One thing that was checked."""

    key: str
    """Short and stable, for JSON, for example `graph`."""
    title: str
    passed: bool | None
    """None: it could not be checked here, or the measurement is undecided; `measured` says why."""
    measured: str
    required: str
    detail: dict[str, Any] = field(default_factory=dict)
    """More numbers, JSON-ready."""
    kind: Kind | None = None
    """`proved`: it holds for every image. `measured`: it was observed in the runs of this check."""
    undecided: bool = False
    """Whether the measurement shows neither that it holds nor that it does not."""
    warning: bool = False
    """Whether a person should look at it, although nothing is proved wrong; `passed` is None."""

    @property
    def not_checked(self) -> bool:
        """Whether something that should have been checked was not; informative items do not count."""
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
    """A group of checks, for example the outputs of two artefacts or the zero-cost certificate.

    Example:
        >>> result = rcil_export.check("model.safetensors", "deployed/model.onnx", max_images=1).results[0]
        >>> [item.title for item in result.items if item.passed is False]
        []
    """

    key: str
    title: str
    items: tuple[Item, ...]
    sha256: dict[str, str] = field(default_factory=dict)
    """Hashes of the files that were checked, by their role, for example `model` and `checkpoint`."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed; items that could not be checked or decided do not count."""
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
