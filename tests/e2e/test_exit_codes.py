"""Exit codes: one number a meaning, and docs/cli.md knows them all."""

import importlib
import pkgutil
import re
from pathlib import Path

import rcil
import rcil_export
import rcil_serve
from rcil.core.errors import RcilError

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
MEANINGS = {
    1: {"RcilError", "OutputError", "DiskFullError", "PromotionError", "RefusalError"},
    2: {"ConfigError", "MissingMapError"},
    3: {"CheckpointError", "RecordError"},
    4: {"MissingDependencyError"},
    5: {
        "CheckFailedError",
        "FoldCheckError",
        "GraphError",
        "MemoryMeasureError",
        "PrecisionError",
        "RunError",
        "SessionError",
    },
    6: {"DataError", "SourceError"},
    7: {"TrainingError", "BudgetError"},
    8: {"GateError"},
    9: {"AlarmError"},
    10: {"NoGpuError"},
    11: {"EngineError"},
    12: {"TrustError"},
    13: {"VerifyError"},
}
"""A new error that shares a number must mean the same: that is decided here."""


def kinds(root=RcilError):
    return {root}.union(*(kinds(kind) for kind in root.__subclasses__()))


def test_every_error_has_the_code_of_its_meaning():
    for package in (rcil, rcil_export, rcil_serve):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = {}
    for kind in kinds():
        if kind.__module__.split(".")[0] in ("rcil", "rcil_export", "rcil_serve"):
            found.setdefault(kind.exit_code, set()).add(kind.__name__)
    assert found == MEANINGS


def test_the_page_lists_them():
    rows = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)]
    assert rows == [0, *MEANINGS, 130, 143]
