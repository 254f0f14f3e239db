"""The table of all kinds, as `docs/export.md` shows it."""

from __future__ import annotations

from collections.abc import Iterator

from mutants import DELIVERIES, FOLDS, MUTANTS
from mutants.exported import honest

BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
TITLES = {
    "structure": "Nodes, wiring, attributes",
    "numbers": "Weights and settings",
    "description": "Descriptions",
    "batch": "Batches",
    "size": "Sizes",
    "precision": "Precision",
}
HEAD = "| what is wrong | `check` | `verify` names |\n|---|---|---|"


def table() -> str:
    """One row per kind; what is named is that of the first form that the kind applies to."""
    return "\n".join([HEAD, *_graphs(), *_folds(), *_deliveries()])


def _graphs() -> Iterator[str]:
    for family, title in TITLES.items():
        yield f"| **{title}** | | |"
        for mutant in MUTANTS.values():
            if mutant.family == family:
                form = mutant.forms[0]
                _, named = mutant.of(honest(form).document)
                yield _row(mutant.kind, _seen(len(mutant.forms), len(mutant.unseen)), named)


def _seen(forms: int, unseen: int) -> str:
    if not unseen:
        return "rejects"
    return "–" if unseen == forms else f"rejects {forms - unseen} of {forms} forms"


def _folds() -> Iterator[str]:
    yield "| **Folds, broken while exporting, and while verifying too** | | |"
    for fold in FOLDS.values():
        yield _row(fold.kind, "rejects", fold.named or "the layer")


def _deliveries() -> Iterator[str]:
    yield "| **Delivered folders and Triton repositories** | | |"
    for delivery in DELIVERIES.values():
        yield _row(delivery.kind, "–", delivery.named)


def _row(kind: str, check: str, named: str) -> str:
    return f"| {kind} | {check} | `{named}` |"


def in_page(page: str) -> str:
    """The table that a page shows."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def put_into(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"
