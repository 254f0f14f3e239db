"""The findings of `verify`: claims about files, differences of descriptions, and the report."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rcil.core.errors import CheckpointError, RcilError
from rcil.core.log import Notify

Status = Literal["proved", "not proved", "wrong"]
EXTRA = "Nothing but what an export writes"
ABSENT = "absent"
MAX_TEXT = 200
"""Characters of a value that a difference quotes."""
MAX_SHOWN = 20
"""Differences of one claim that the text lists; the JSON document has all of them."""


class VerifyError(RcilError):
    """A delivered model that is not what its checkpoint gives."""

    exit_code = 13


@dataclass(frozen=True)
class Difference:
    """One difference between delivered and expected."""

    where: str
    """A layer, a node with its field, or the path of a field: `classes[2].colour`."""
    delivered: str
    expected: str


@dataclass(frozen=True)
class Claim:
    """One statement about one delivered file."""

    file: str
    """Path relative to the delivered folder."""
    key: str
    """Short and stable, for JSON, for example `rebuild`."""
    title: str
    status: Status
    text: str
    """The reason, in one line."""
    differences: tuple[Difference, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True)
class VerifyReport:
    """All claims about a delivery.

    Example:
        >>> report = rcil_export.verify("deployed/model.onnx", "model.safetensors")
        >>> [claim.key for claim in report.claims if claim.status == "wrong"]
        []
    """

    delivered: str
    checkpoint: str
    checkpoint_sha256: str
    claims: tuple[Claim, ...]
    files: dict[str, str] = field(default_factory=dict)
    """The sha256 of every delivered file that was read."""
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The interface that each graph states. The fresh export follows it, so only the receiver can judge it."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; claims that could not be proved do not count."""
        return all(claim.status != "wrong" for claim in self.claims)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences of all claims."""
        return tuple(difference for claim in self.claims for difference in claim.differences)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "ok": self.ok,
            "delivered": self.delivered,
            "checkpoint": self.checkpoint,
            "checkpoint_sha256": self.checkpoint_sha256,
            "files": self.files,
            "interfaces": self.interfaces,
            "claims": [claim.as_document() for claim in self.claims],
        }


def claim_of(file: str, key: str, title: str, proved: str, differences: Iterable[Difference]) -> Claim:
    """A claim that is proved if there are no differences, and wrong otherwise."""
    found = tuple(differences)
    if not found:
        return Claim(file, key, title, "proved", proved)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Claim(file, key, title, "wrong", f"{found[0].where}{more}", found)


def as_text(report: VerifyReport) -> str:
    """One block per file: its hash, its interface, each claim with its status, and what differs."""
    lines = [f"{report.delivered} against {report.checkpoint}, sha256 {report.checkpoint_sha256}"]
    width = max((len(claim.title) for claim in report.claims), default=0)
    for file in dict.fromkeys(claim.file for claim in report.claims):
        digest = report.files.get(file)
        lines.append(f"{file}" + (f"  sha256 {digest}" if digest else ""))
        if file in report.interfaces:
            lines.append(f"  {'states':10}  {_summary(report.interfaces[file])}")
        for claim in report.claims:
            if claim.file == file:
                lines.append(f"  {_STATUS[claim.status]:10}  {claim.title:{width}}  {claim.text}")
                lines += _listed(claim.differences)
    counts = {status: sum(claim.status == status for claim in report.claims) for status in _STATUS}
    lines.append(", ".join(f"{count} {status}" for status, count in counts.items()))
    return "\n".join(lines)


_STATUS: dict[Status, str] = {"proved": "proved", "not proved": "not proved", "wrong": "WRONG"}


def _listed(differences: Sequence[Difference]) -> list[str]:
    lines = []
    for difference in differences[:MAX_SHOWN]:
        lines.append(f"              {difference.where}")
        lines.append(f"                delivered: {difference.delivered}")
        lines.append(f"                expected:  {difference.expected}")
    if len(differences) > MAX_SHOWN:
        lines.append(f"              and {len(differences) - MAX_SHOWN} more; --json lists all")
    return lines


def _summary(interface: dict[str, Any]) -> str:
    """The interface in one line, for the receiver to compare with the order."""
    sides = [interface["shape"][axis] for axis in ("batch", "height", "width")]
    sizes = " x ".join(str(s["low"]) if s["low"] == s["high"] else f"{s['low']}..{s['high']}" for s in sides)
    known = {
        "": interface["precision"],
        "size ": sizes,
        "input ": interface["input"],
        "outputs ": " and ".join(interface["outputs"]),
        "opset ": interface["opset"],
        "for ": interface.get("runtime"),
    }
    return ", ".join(f"{name}{value}" for name, value in known.items() if value is not None)


@dataclass
class Findings:
    """Claims about the files below `root`, each file read once."""

    root: Path
    """The delivered folder, or the folder of the delivered file."""
    notify: Notify = lambda text: None
    claims: list[Claim] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)

    def name(self, path: Path) -> str:
        """The name of a file in the report."""
        return str(path.relative_to(self.root))

    def read(self, path: Path) -> bytes:
        """Read a file and record its hash."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
        self.files[self.name(path)] = hashlib.sha256(data).hexdigest()
        return data

    def add(self, path: Path, key: str, title: str, proved: str, differences: Iterable[Difference]) -> bool:
        """Add a claim that is proved unless something differs; returns whether it is proved."""
        self.claims.append(claim_of(self.name(path), key, title, proved, differences))
        return self.claims[-1].status == "proved"

    def not_proved(self, path: Path, key: str, title: str, why: str) -> None:
        """Add a claim that can be neither proved nor refuted here."""
        self.claims.append(Claim(self.name(path), key, title, "not proved", why))

    def wrong(self, path: Path, key: str, title: str, why: str) -> None:
        """Add a claim that is refuted as a whole."""
        self.claims.append(Claim(self.name(path), key, title, "wrong", why, (Difference(self.name(path), why, title),)))


def extra_files(folder: Path, known: set[str]) -> list[Path]:
    """Unknown files in a folder, including links, folders and hidden files."""
    return [path for path in sorted(folder.iterdir()) if path.name not in known or path.is_symlink() or path.is_dir()]


def compare_documents(delivered: object, expected: object, path: str = "") -> Iterator[Difference]:
    """Every field that differs between two JSON values, named like `classes[2].colour[0]`."""
    if isinstance(delivered, dict) and isinstance(expected, dict):
        for key in dict.fromkeys([*expected, *delivered]):
            where = f"{path}.{key}" if path else str(key)
            if key not in delivered or key not in expected:
                found, wanted = (_shown(side[key]) if key in side else ABSENT for side in (delivered, expected))
                yield Difference(where, found, wanted)
            else:
                yield from compare_documents(delivered[key], expected[key], where)
    elif isinstance(delivered, list) and isinstance(expected, list):
        for index, (found, wanted) in enumerate(zip(delivered, expected, strict=False)):
            yield from compare_documents(found, wanted, f"{path}[{index}]")
        if len(delivered) != len(expected):
            yield Difference(path, f"{len(delivered)} entries", f"{len(expected)} entries")
    elif type(delivered) is not type(expected) or delivered != expected:
        yield Difference(path, _shown(delivered), _shown(expected))


def compare_tables(delivered: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[Difference]:
    """Every entry that differs between two tables of texts."""
    for name in dict.fromkeys([*expected, *delivered]):
        found, wanted = delivered.get(name, ABSENT), expected.get(name, ABSENT)
        if found != wanted:
            yield Difference(name, found, wanted)


def compare_texts(delivered: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[Difference]:
    """Differences of metadata entries; entries that hold JSON on both sides are compared field by field."""
    for key in sorted({*delivered, *expected}):
        found, wanted = delivered.get(key), expected.get(key)
        if found == wanted:
            continue
        if found is None or wanted is None:
            yield Difference(key, *(ABSENT if side is None else _shown(side) for side in (found, wanted)))
            continue
        both = _parsed(found), _parsed(wanted)
        if all(isinstance(side, dict) for side in both):
            listed = list(compare_documents(*both, path=key))
            yield from listed or [Difference(key, "the same fields, written differently", "the text of a fresh export")]
        else:
            yield Difference(key, _shown(found), _shown(wanted))


def compare_lines(name: str, delivered: str, expected: str) -> Iterator[Difference]:
    """Lines of a text that differ, by their number in the delivered text."""
    found, wanted = delivered.split("\n"), expected.split("\n")
    for kind, low, high, low_b, high_b in difflib.SequenceMatcher(None, found, wanted, autojunk=False).get_opcodes():
        if kind != "equal":
            sides = (found[low:high], wanted[low_b:high_b])
            yield Difference(f"{name}, line {low + 1}", *(_shown(" / ".join(side)) or ABSENT for side in sides))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
