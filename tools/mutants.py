"""Prints the table of spoilt exports; with --write also puts it into docs/export.md.

    python -m tools.mutants --write

The tests in `tests/export/verification` hold `verify` and `check` to it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "export.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="also write it into docs/export.md")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from mutants import table

    if arguments.write:
        from rcil.core.files import write_file

        write_file(PAGE, table.put_into(PAGE.read_text(encoding="utf-8")))
    print(table.table())


if __name__ == "__main__":
    main()
