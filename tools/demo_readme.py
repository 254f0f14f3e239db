"""Copy the picture and the table of a finished `make demo` into the README.

Usage: python -m tools.demo_readme demo
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"\| \| background \|.*\n(?:\|.*\n)+")
Values = Mapping[str, float | None]


def table(iou: Mapping[str, Values]) -> str:
    """IoU of every class (columns) for every model (rows) as a Markdown table."""
    *_, last = iou.values()
    lines = [("|", *last), *((f"| {title}", *(number(v.get(name)) for name in last)) for title, v in iou.items())]
    first, *rest = (" | ".join(line) + " |\n" for line in lines)
    return "".join((first, "|---" * (1 + len(last)) + "|\n", *rest))


def number(value: float | None) -> str:
    """One decimal, or a dash for a class that the model does not know."""
    return "–" if value is None else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="The folder of `rcil demo`.")
    demo, readme = parser.parse_args().demo, ROOT / "README.md"
    report = json.loads((demo / "report.json").read_text(encoding="utf-8"))
    text, found = TABLE.subn(table(report["iou"]), readme.read_text(encoding="utf-8"))
    if found != 1:
        raise SystemExit(f"{readme} has {found} tables that start with '| | background |', not one")
    readme.write_text(text, encoding="utf-8")
    shutil.copyfile(demo / "demo.jpg", ROOT / "docs" / "demo.jpg")
    print(f"{report['training_images']} training images, {report['evaluated_images']} measured, {report['seconds']} s")


if __name__ == "__main__":
    main()
