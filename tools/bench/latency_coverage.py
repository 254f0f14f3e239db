"""Measure how often the certificate's 95 % interval of a latency ratio contains 1 for two identical graphs.

A correct interval contains it in about 95 % of the trials, whatever else the machine does. Every trial is a whole
measurement of the certificate, in pairs of fresh sessions. A neighbour is a process that computes all the time.

Examples:
    python tools/bench/latency_coverage.py
    python tools/bench/latency_coverage.py --trials 400 --neighbours 0 2 --size 224
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from workers import competitors

from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build
from rcil_export.certificate.latency import latency_item
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape
from rcil_export.timing.interleaved import LatencyOptions

NAMES = [["background", "a", "b"]]


def write_graph(path: Path, size: int, width: int) -> None:
    """A plain ResNet-18 with random weights."""
    torch.manual_seed(0)
    arch = Architecture(backbone="resnet18", width=width, head_width=32, rc=None, folded=True)
    metadata = Metadata(architecture=arch, classes=class_table(NAMES))
    write_onnx(path, to_onnx(build(arch, NAMES), metadata, Interface(shape=InputShape.of(size, size))))


def coverage(graph: Path, size: int, trials: int, rounds: int) -> dict[str, float | int]:
    """Measure `trials` times; every trial has a seed of its own."""
    covered, widths, verdicts = 0, [], []
    for seed in range(trials):
        options = LatencyOptions(rounds=rounds, warmup=1, seed=seed)
        item = latency_item(graph, graph, (1, size, size, 3), options)
        low, high = item.detail["low"], item.detail["high"]
        covered += low <= 1 <= high
        widths.append(high - low)
        verdicts.append(item.passed)
    share = covered / trials
    return {
        "trials": trials,
        "coverage_percent": round(100 * share, 1),
        "standard_error_percent": round(100 * math.sqrt(share * (1 - share) / trials), 1),
        "median_width": round(float(np.median(widths)), 4),
        "passed": verdicts.count(True),
        "undecided": verdicts.count(None),
        "failed": verdicts.count(False),
    }


def main() -> None:
    """Print one line of JSON for each number of neighbours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 4])
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.onnx"
        write_graph(graph, arguments.size, arguments.width)
        for count in arguments.neighbours:
            with competitors(count):
                found = coverage(graph, arguments.size, arguments.trials, arguments.rounds)
            print(json.dumps({"neighbours": count, **found}), flush=True)


if __name__ == "__main__":
    main()
