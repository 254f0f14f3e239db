"""Run the commands of docs/tutorial.md, and bring their numbers and pictures to the page: `python -m tools.tutorial`.

The commands of the page's `sh` blocks run one after another in a folder, exactly as the page shows them; those that
have run are not repeated. The deployed model is the one that is shipped with the demo. Run it on an idle machine: the
length of the training follows from the time.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcil.core.documents import parse_json
from rcil.core.files import copy_file, write_file
from rcil.core.images import write_image
from rcil.data.site import read_site
from rcil.demo.picture import draw_grid, pick_scenes
from rcil.demo.run import AFTER, BASE, BEFORE, DOMAINS, QUALITY
from rcil.inference import load
from tools.pages import filled

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "tutorial.md"
MODULES = {"rcil": "rcil", "rcil-export": "rcil_export", "rcil-serve": "rcil_serve"}
DEPLOYED, SITE, NEW = "demo/deployed.safetensors", "yard", "vehicle"
REJECTED = 8
"""Exit code of a rejected model, which is a result too."""


def commands(text: str) -> list[str]:
    """The commands of the page's `sh` blocks."""
    found = re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)
    return [line for block in found for line in block.splitlines()]


def run(line: str, number: int, folder: Path) -> str:
    """What a command prints; that of an earlier call if it has been run already."""
    log = folder / "logs" / f"{number}.txt"
    title, _, earlier = (log.read_text(encoding="utf-8") if log.exists() else "").partition("\n")
    if title == line:
        return earlier
    print(f"$ {line}", flush=True)
    script, *words = shlex.split(line)
    words += ["--resume"] if "add-class" in words and (folder / words[words.index("-o") + 1]).exists() else []
    done = subprocess.run(
        [sys.executable, "-m", MODULES[script], *words], cwd=folder, capture_output=True, text=True, check=False
    )
    printed = done.stdout + done.stderr
    if done.returncode not in (0, REJECTED):
        raise SystemExit(f"{printed}{line} ended with exit code {done.returncode}")
    write_file(log, f"{line}\n{printed}")
    return printed


def line_with(printed: Mapping[str, str], command: str, start: str) -> str:
    """The line that a command printed and that begins with a text."""
    (output,) = [text for line, text in printed.items() if line.startswith(command)]
    return next(line for line in output.splitlines() if line.startswith(start))


def table(report: Mapping[str, Any]) -> list[str]:
    """IoU of both models, and the drop with its interval, for every class."""
    old = [
        (c["name"], number(c["before"]), number(c["after"]), number(c["drop"]), interval(c["interval"]))
        for c in report["old_classes"]
    ]
    new = [(c["name"], "–", number(c["iou"]), "–", interval(c["interval"])) for c in report["new_classes"]]
    head = ("class", "before", "after", "drop", "90 % interval of the drop; of the IoU for the new class")
    return [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *old, *new)]


def number(value: float | None) -> str:
    """One decimal, or a dash."""
    return "–" if value is None else f"{value:.1f}"


def interval(value: Sequence[float] | None) -> str:
    """Both ends, or a dash."""
    return "–" if value is None else f"{value[0]:.1f} to {value[1]:.1f}"


def parts(printed: Mapping[str, str], folder: Path) -> dict[str, list[str]]:
    """The generated parts of the page by name, as lines."""
    report = parse_json((folder / NEW / "report.json").read_text(encoding="utf-8"))
    changes = parse_json((folder / "changes" / "diff.json").read_text(encoding="utf-8"))
    reason = report["reason"]
    recipe = line_with(printed, "rcil add-class", "scale ")
    return {
        "check": ["```text", line_with(printed, "rcil data check", "images: "), "```"],
        "recipe": ["```text", recipe, "```"],
        "result": [*table(report), "", f"The verdict: **{report['verdict']}**. {reason[:1].upper()}{reason[1:]}."],
        "changes": ["```text", changes["headline"], "```"],
    }


def draw(folder: Path) -> None:
    """The pictures of the page: both models on scenes of the split `val`, and the timeline of the clip."""
    data = read_site(folder / SITE, record=False)
    models = {BEFORE: load(folder / DEPLOYED), AFTER: load(folder / NEW / "model.safetensors")}
    scenes = pick_scenes(data, "val", NEW, DOMAINS)
    write_image(DOCS / "tutorial.jpg", draw_grid(scenes, data, models), quality=QUALITY)
    copy_file(folder / "areas.png", DOCS / "tutorial-areas.png")


def main() -> None:
    """Run what has not been run yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/tutorial"), help="(build/tutorial)")
    folder: Path = parser.parse_args().folder
    text = PAGE.read_text(encoding="utf-8")
    deployed = folder / DEPLOYED
    deployed.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(BASE, deployed)
    printed = {line: run(line, index, folder) for index, line in enumerate(commands(text))}
    draw(folder)
    write_file(PAGE, filled(text, parts(printed, folder)))


if __name__ == "__main__":
    main()
