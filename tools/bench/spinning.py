"""Measure how OpenMP threads should wait: training steps of a small network with several spin counts, interleaved.

Idle threads of torch spin, that is, they wait for the next parallel section in a loop before they sleep. On an idle
machine this shortens the wait, but on a busy one it takes the core from the thread that has the work. Every spin count
(`GOMP_SPINCOUNT`) has a process of its own; rounds alternate. The table shows medians (quartiles) of the seconds and
the processor seconds of a step, and the median ratio of the seconds to those of libgomp's default in the same round.

With `--runtime onnxruntime`, the same for ONNX Runtime's threads, which spin or not.

Examples:
    python tools/bench/spinning.py
    python tools/bench/spinning.py --busy 2 --json busy.json
    python tools/bench/spinning.py --runtime onnxruntime --busy 2
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from ratios import Ratio, options_of, paired, record, write_numbers
from workers import Worker, competitors, shown, spread

LIBGOMP = 300_000
"""Spin count of libgomp if the environment says nothing."""
COUNTS = (LIBGOMP, 100_000, 30_000, 10_000, 3_000, 1_000, 0)
SPINS, MICROSECONDS = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
SESSIONS = {
    "default": {},
    "spinning for 1000 us": {MICROSECONDS: "1000"},
    "spinning for 200 us": {MICROSECONDS: "200"},
    "spinning for 50 us": {MICROSECONDS: "50"},
    "not spinning": {SPINS: "0"},
}
"""Settings of ONNX Runtime's sessions."""


def start_workers(arguments: argparse.Namespace) -> dict[str, Worker]:
    options = ["--crop", str(arguments.crop), "--batch", str(arguments.batch), "--layout", "channels-last"]
    several = ["--threads", str(arguments.threads)]
    if arguments.runtime == "onnxruntime":
        return {
            name: Worker([*options, *several, "--session", json.dumps(entries)], {})
            for name, entries in SESSIONS.items()
        }
    workers = {
        f"{count} spins": Worker([*options, *several], {"GOMP_SPINCOUNT": str(count)}) for count in arguments.counts
    }
    workers["one thread"] = Worker([*options, "--threads", "1"], {})
    return workers


def measure(workers: dict[str, Worker], arguments: argparse.Namespace) -> dict[str, Any]:
    step = "infer" if arguments.runtime == "onnxruntime" else "joint"
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for worker in workers.values():
        worker.ask(step=step, count=1)
    with competitors(arguments.busy):
        for _ in range(arguments.rounds):
            for name, worker in workers.items():
                runs[name].append(worker.ask(step=step, count=arguments.steps))
    reference = [run["seconds"] for run in next(iter(runs.values()))]
    return {
        name: {
            "seconds": spread([run["seconds"] for run in found]),
            "cpu": spread([run["cpu"] for run in found]),
            "speedup": paired(reference, [run["seconds"] for run in found])._asdict(),
        }
        for name, found in runs.items()
    }


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--runtime", choices=("torch", "onnxruntime"), default="torch")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="spin counts, the reference first")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="start N competing processes")
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="steps in a row per round")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    workers = start_workers(arguments)
    try:
        variants = measure(workers, arguments)
    finally:
        for worker in workers.values():
            worker.close()
    print(f"load average {load:.1f} at the start, {arguments.busy} competing processes")
    print("| threads wait | s per step | processor s per step | times as fast |\n|---|---|---|---|")
    for name, found in variants.items():
        print(f"| {name} | {shown(found['seconds'])} | {shown(found['cpu'])} | {found['speedup']['value']:.2f} |")
    others = [*variants.items()][1:]
    record(
        f"spinning, {arguments.runtime}, {arguments.busy} competitors",
        {f"{name} instead of {next(iter(variants))}": Ratio(**found["speedup"]) for name, found in others},
    )
    settings = {name: str(value) for name, value in vars(arguments).items()}
    document = {"settings": settings, "load_average": load, "variants": variants}
    write_numbers(arguments.json, document)


if __name__ == "__main__":
    main()
