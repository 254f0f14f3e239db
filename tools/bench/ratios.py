"""Ratios of benchmarks: store what a benchmark measured, and compare everything that was measured with the baseline.

A benchmark measures both sides in one process, so that their ratio says something on any machine, as times do not. All
ratios here are written so that more is better, with the quartiles of their rounds or a 95 % interval as the spread.
`record` prints them and writes `build/bench/NAME.json`.

As a program, this file compares these with `baseline.json`. A ratio has become worse if its whole spread lies below the
whole spread of the baseline by more than the tolerance; then the exit code is 1. So it is if a ratio of the baseline
was not measured, unless --partial is given.

Examples:
    python tools/bench/ratios.py
    python tools/bench/ratios.py --partial --tolerance 0.1
    python tools/bench/ratios.py --update
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "build" / "bench"
BASELINE = Path(__file__).with_name("baseline.json")
TOLERANCE = 0.05
Verdict = Literal["same", "worse", "better", "missing", "new"]


class Ratio(NamedTuple):
    """How many times as fast, or as small, something is as its reference, and the ends of its spread."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"

    @property
    def inverse(self) -> Ratio:
        """The reference relative to the other side."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)


def paired(reference: Sequence[float], values: Sequence[float]) -> Ratio:
    """Median and quartiles of reference / value over rounds that measured both.

    A busy machine affects the ratios of rounds less than the ratio of medians.
    """
    ratios = [a / b for a, b in zip(reference, values, strict=True)]
    if len(ratios) == 1:
        return Ratio(*ratios * 3)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(middle, low, high)


def record(bench: str, ratios: Mapping[str, Ratio], folder: Path = MEASURED) -> None:
    """Print the ratios of a benchmark and write them to a file of their own."""
    for name, ratio in ratios.items():
        print(f"ratio: {bench}: {name}: {ratio}")
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "ratios": {name: ratio._asdict() for name, ratio in ratios.items()}}
    (folder / f"{bench.replace(' ', '-')}.json").write_text(json.dumps({"bench": bench, **document}, indent=1) + "\n")


def options_of(description: str | None) -> argparse.ArgumentParser:
    """The options of a benchmark: --json, besides those that it adds itself."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    return parser


def write_numbers(path: Path | None, numbers: object) -> None:
    """Write what a benchmark measured, if --json is given."""
    if path is not None:
        path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def machine() -> str:
    """What the ratios may depend on."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def measured(folder: Path = MEASURED) -> dict[str, Any]:
    """Everything that was recorded, by benchmark."""
    documents = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return {document.pop("bench"): document for document in documents}


def compare(baseline: Mapping[str, Any], found: Mapping[str, Any], tolerance: float) -> dict[tuple[str, str], Verdict]:
    """The verdict on every ratio of either side, by benchmark and name."""
    before, after = ratios_of(baseline), ratios_of(found)
    verdicts: dict[tuple[str, str], Verdict] = {}
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            verdicts[key] = "missing"
        elif key not in before:
            verdicts[key] = "new"
        else:
            verdicts[key] = judge(before[key], after[key], tolerance)
    return verdicts


def judge(before: Ratio, after: Ratio, tolerance: float) -> Literal["same", "worse", "better"]:
    """Whether two spreads lie apart by more than the tolerance."""
    if after.high < before.low * (1 - tolerance):
        return "worse"
    if after.low > before.high * (1 + tolerance):
        return "better"
    return "same"


def ratios_of(documents: Mapping[str, Any]) -> dict[tuple[str, str], Ratio]:
    """All ratios of recorded documents by benchmark and name."""
    return {
        (bench, name): Ratio(**ratio)
        for bench, document in documents.items()
        for name, ratio in document["ratios"].items()
    }


def table(
    baseline: Mapping[str, Any], found: Mapping[str, Any], verdicts: Mapping[tuple[str, str], Verdict]
) -> Iterable[str]:
    """One row for each ratio."""
    before, after = ratios_of(baseline), ratios_of(found)
    yield "| benchmark | ratio | baseline | now | |"
    yield "|---|---|---|---|---|"
    for key, verdict in verdicts.items():
        yield f"| {key[0]} | {key[1]} | {before.get(key, '')} | {after.get(key, '')} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, default=MEASURED, help="folder of what `make bench` wrote")
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="share beyond both spreads (default 0.05)")
    parser.add_argument("--partial", action="store_true", help="ratios that were not measured are no error")
    parser.add_argument("--update", action="store_true", help="store what was measured in the baseline")
    arguments = parser.parse_args()
    found = measured(arguments.measured)
    if not found:
        sys.exit(f"{arguments.measured} holds no measurements; run: make bench")
    baseline = json.loads(arguments.baseline.read_text("utf-8")) if arguments.baseline.exists() else {}
    if arguments.update:
        arguments.baseline.write_text(json.dumps(baseline | found, indent=1, sort_keys=True) + "\n")
        print(f"{arguments.baseline}: {len(ratios_of(found))} ratios of {len(found)} benchmarks")
        return
    if not baseline:
        sys.exit(f"{arguments.baseline} holds no ratios; on an idle machine, store them with --update")
    verdicts = compare(baseline, found, arguments.tolerance)
    print("\n".join(table(baseline, found, verdicts)))
    for bench, document in found.items():
        if bench in baseline and baseline[bench]["machine"] != document["machine"]:
            print(f"{bench}: measured on {document['machine']}, the baseline on {baseline[bench]['machine']}")
    failed = {"worse"} if arguments.partial else {"worse", "missing"}
    sys.exit(1 if failed & set(verdicts.values()) else 0)


if __name__ == "__main__":
    main()
