"""The clock on the wall can be set at any time, so only labels may come from it; durations come from another one."""

import ast
from pathlib import Path

import rcil
import rcil_export
import rcil_serve

LABELS = {
    "rcil/data/scan.py": {"st_mtime_ns"},  # beside the size, tells a mask that was drawn anew from the one in memory
    "rcil_serve/stream/outputs/receipt.py": {"now"},  # when a run began
    "rcil_serve/stream/outputs/segments.py": {"now"},  # names of files
    "rcil_serve/watch/events.py": {"now"},  # when an alarm was raised
}
WALL = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime", "st_mtime", "st_mtime_ns", "st_ctime"}


def wall_clock_of(source):
    """Names of the wall clock that a module uses."""
    names = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr in WALL)
    clocks = {"time", "datetime", "date", "status"}
    return {name.attr for name in names if isinstance(name.value, ast.Name) and name.value.id in clocks}


def test_the_wall_clock_is_used_for_labels_only():
    found = {}
    for package in (rcil, rcil_export, rcil_serve):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            used = wall_clock_of(path.read_text(encoding="utf-8"))
            if used:
                found[path.relative_to(root.parent).as_posix()] = used
    assert found == LABELS


def test_a_module_that_measures_by_the_wall_clock_is_seen():
    assert wall_clock_of("import time\nbegun = time.time()") == {"time"}
    assert wall_clock_of("from datetime import datetime\nbegun = datetime.now()") == {"now"}
    assert wall_clock_of("import time\nbegun = time.monotonic()") == set()
