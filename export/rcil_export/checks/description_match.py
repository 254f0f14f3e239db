"""Whether the description in a file is that of its checkpoint, field by field; torch is not imported."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from rcil.model.metadata import LineageEntry, Metadata
from rcil_export.checks.result import FOR_INFORMATION, Item, Result

DEPLOYING = ("fold", "export")
"""Lineage entries that change the form of a network, but not what it learned."""
BY_STEP = ("step", "method", "rejected", "uncertain")
"""Fields that a continual step changes."""
NOT_COMPARED = ("classes", "architecture", "lineage", "cost", "format_version", *BY_STEP)
"""Fields that are compared separately, or that describe the file and not the network."""


def description_result(
    name: str, described: Metadata, reference_name: str, reference: Metadata, hashes: Collection[str] = ()
) -> Result:
    """Compare a file's description with its reference's.

    Two steps of one network may differ in what a step changes: further classes, step, method and lineage. A file whose
    lineage says that it was made from the reference must be of the same step.

    Args:
        name: Name of the file, for reports.
        described: The description in the file.
        reference_name: Name of the reference, for reports.
        reference: The description of the checkpoint that the file must be a form of.
        hashes: sha256 of the reference's file, if it is a checkpoint.
    """
    made_from_it = not set(hashes).isdisjoint(_deployed_from(described.lineage))
    other_step = described.step != reference.step and not made_from_it
    table = list(_table_differences(described, reference, other_step=other_step))
    fields = list(_field_differences(described, reference, other_step=other_step))
    items = [
        _item("class_table", "Class table", table, f"{len(described.classes)} classes: names, ids, colours, steps"),
        _item("description", "Description", fields, "architecture, mean, std, colour order and the rest"),
    ]
    if other_step:
        measured = f"not compared: the steps are {described.step} and {reference.step}"
        items.append(Item("lineage", "Lineage", None, measured, FOR_INFORMATION))
    else:
        items.append(_lineage_item(described, reference, hashes))
    return Result("metadata", f"Description of {name} against {reference_name}", tuple(items))


LINEAGE_REQUIRED = "the steps of the reference"


def _item(key: str, title: str, differences: list[str], compared: str) -> Item:
    measured = "; ".join(differences) or f"the same {compared}"
    return Item(key, title, not differences, measured, "as in the reference", {"differences": differences})


def _table_differences(a: Metadata, b: Metadata, *, other_step: bool) -> Iterator[str]:
    """Differences of the file a from its reference b, named like `classes[3].colour`."""
    names_a, names_b = [c.name for c in a.classes], [c.name for c in b.classes]
    common = [name for name in names_b if name in names_a]
    if [name for name in names_a if name in names_b] != common:
        row = next(row for row, (one, other) in enumerate(zip(names_a, names_b, strict=False)) if one != other)
        yield f"the row order differs: classes[{row}].name is '{names_a[row]}', not '{names_b[row]}'"
    for row, info in enumerate(b.classes):
        where = f"classes[{row}]"
        if info.name not in names_a:
            if other_step:
                continue
            instead = f"'{names_a[row]}'" if row < len(names_a) else "absent"
            yield f"{where}.name is {instead}, not '{info.name}'"
            continue
        found = a.classes[names_a.index(info.name)]
        for field in ("id", "colour", "step"):
            mine, wanted = getattr(found, field), getattr(info, field)
            if mine != wanted:
                yield f"{where}.{field} of {info.name} is {mine}, not {wanted}"
    if not other_step:
        for row, name in enumerate(names_a):
            if name not in names_b and row >= len(names_b):
                yield f"classes[{row}] is '{name}', which the reference does not have"


def _field_differences(a: Metadata, b: Metadata, *, other_step: bool) -> Iterator[str]:
    mine, wanted = _fields(a, other_step=other_step), _fields(b, other_step=other_step)
    for key in dict.fromkeys([*wanted, *mine]):
        if mine.get(key) != wanted.get(key):
            yield f"{key} is {mine.get(key)}, not {wanted.get(key)}"


def _fields(metadata: Metadata, *, other_step: bool) -> dict[str, Any]:
    """All fields except class table and lineage; the architecture in its deployed form."""
    fields = metadata.model_dump(exclude=set(NOT_COMPARED))
    if not other_step:
        fields |= {key: getattr(metadata, key) for key in BY_STEP}
    deployed = metadata.architecture.replace(rc=None, folded=True, norm="batch")
    return fields | {f"architecture.{key}": value for key, value in deployed.model_dump().items()}


def _lineage_item(a: Metadata, b: Metadata, hashes: Collection[str]) -> Item:
    mine, wanted = _taught(a.lineage), _taught(b.lineage)
    differences = [
        f"lineage[{at}].{field} is {_value(mine, at, field)}, not {_value(wanted, at, field)}"
        for at in range(max(len(mine), len(wanted)))
        for field in LineageEntry.model_fields
        if _value(mine, at, field) != _value(wanted, at, field)
    ]
    made_from = _deployed_from(a.lineage)
    known = {*hashes, *_deployed_from(b.lineage)}
    if hashes and made_from and not known.intersection(made_from):
        differences.append(
            f"lineage[{len(a.lineage) - 1}].parent_sha256 is {made_from[-1][:12]}, "
            f"and the reference's is {next(iter(hashes))[:12]}"
        )
    return Item(
        "lineage",
        "Lineage",
        not differences,
        "; ".join(differences[:3]) or f"the same {len(mine)} entries",
        LINEAGE_REQUIRED,
        {"differences": differences},
    )


def _taught(lineage: tuple[LineageEntry, ...]) -> tuple[LineageEntry, ...]:
    """The lineage without the entries of folding and exporting at its end."""
    end = len(lineage)
    while end and lineage[end - 1].source in DEPLOYING:
        end -= 1
    return lineage[:end]


def _deployed_from(lineage: tuple[LineageEntry, ...]) -> list[str]:
    """Hashes of the files that were folded or exported last."""
    forms = lineage[len(_taught(lineage)) :]
    return [entry.parent_sha256 for entry in forms if entry.parent_sha256 is not None]


def _value(lineage: tuple[LineageEntry, ...], at: int, field: str) -> object:
    return getattr(lineage[at], field) if at < len(lineage) else "absent"
