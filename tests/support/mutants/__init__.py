"""Delivered models with one thing wrong, each with the name of what is wrong.

`MUTANTS` changes a graph, `FOLDS` breaks the fold that makes one, `DELIVERIES` changes a delivered folder or a Triton
repository. `rcil-export verify` must reject every one of them; `rcil-export check` those that images can show.
"""

from mutants import batches, descriptions, numbers, precisions, structure
from mutants.delivery import DELIVERIES, Delivery
from mutants.folds import FOLDS, BrokenFold
from mutants.kinds import FORMS, MUTANTS, Mutant

__all__ = [
    "DELIVERIES",
    "FOLDS",
    "FORMS",
    "MUTANTS",
    "BrokenFold",
    "Delivery",
    "Mutant",
    "batches",
    "descriptions",
    "numbers",
    "precisions",
    "structure",
]
