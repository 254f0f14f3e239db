"""Kill programs at random moments and check that nothing is lost: `python -m tools.kill [SCENARIO ...] --kills 50`.

Each scenario runs the real command in its own process group and sends SIGKILL to the whole group. Half of the moments
are uniform over the length of an undisturbed run, half are after the first output. The exit code is 1 if anything was
lost.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rcil.core.documents import write_json
from rcil.core.errors import did_you_mean
from tools.kill.export import kill_export
from tools.kill.reload import kill_server
from tools.kill.tally import Tally
from tools.kill.train import kill_training
from tools.kill.video import kill_video

SCENARIOS: dict[str, Callable[[Path, Tally, random.Random], None]] = {
    "train": kill_training,
    "export": kill_export,
    "video": kill_video,
    "reload": kill_server,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"all by default: {', '.join(SCENARIOS)}")
    parser.add_argument("--kills", type=int, default=50, help="number of kills per scenario (50)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="time limit for the kills of each scenario")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments (0)")
    parser.add_argument("--json", type=Path, help="write the results to this file; other scenarios in it are kept")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.scenarios if name not in SCENARIOS]
    if unknown:
        print(f"unknown scenario '{unknown[0]}'. {did_you_mean(unknown[0], SCENARIOS)}", file=sys.stderr)
        return 2
    lost = False
    for name in given.scenarios or SCENARIOS:
        found = {"seed": given.seed, **run_scenario(name, given.kills, given.minutes, given.seed).as_document()}
        summary = ", ".join(f"{key} {value}" for key, value in found.items() if key != "problems")
        print(f"{name}: {summary}", *found["problems"], sep="\n  ", flush=True)
        lost = lost or not found["ok"]
        if given.json is not None:
            others = json.loads(given.json.read_text()) if given.json.exists() else {}
            write_json(given.json, {**others, name: found})
    return int(lost)


def run_scenario(name: str, kills: int, minutes: float, seed: int) -> Tally:
    """Run one scenario in a temporary folder."""
    tally = Tally(kills, minutes)
    with tempfile.TemporaryDirectory(prefix="rcil-kill-") as folder:
        SCENARIOS[name](Path(folder), tally, random.Random(f"{name} {seed}"))
    tally.seconds = time.monotonic() - tally.begun
    return tally


if __name__ == "__main__":
    sys.exit(main())
