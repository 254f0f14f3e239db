"""Kills `rcil-serve video`: finished files must be complete, partial videos playable, and the next run unaffected."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

from rcil.core.files import sha256_of
from rcil.scenes import make_site
from tools.kill.models import write_checkpoint
from tools.kill.programs import Words, choose, measure, run, touched
from tools.kill.tally import Tally, left_in
from tools.kill.whole import frames_of, problems_in

FRAMES, SIZE = 160, (160, 208)
TO_THE_END = 5
"""Number of kills after which one run is allowed to finish."""
MASKS = ("masks.mkv", "masks")


def kill_video(folder: Path, tally: Tally, rng: random.Random) -> None:
    """Kill runs that write to one folder, which is empty or holds the outputs of an earlier run."""
    make_site(folder / "site", images=5, size=SIZE, frames=FRAMES)
    checkpoint, log, output = write_checkpoint(folder / "model.safetensors", 0), folder / "log", folder / "seen"
    size = "x".join(map(str, SIZE))
    measure(["rcil_export", "onnx", checkpoint, "-o", folder / "model.onnx", "--size", size], log, lambda: False)
    references: dict[str, Path] = {}
    for masks in MASKS:
        references[masks] = folder / f"reference_{Path(masks).stem}_{len(references)}"
        receipt = references[masks] / "seen.receipt.json"
        pace = measure(_words(folder, references[masks], masks), log, receipt.exists)
        tally.seconds_undisturbed = pace.total
    while tally.left:
        masks = MASKS[tally.finished % 2]
        if tally.finished % 4 < 2:
            shutil.rmtree(output, ignore_errors=True)
        for left in range(min(TO_THE_END, tally.left), -1, -1):
            moment = choose(pace, rng) if left else None
            ending = run(_words(folder, output, masks), log, moment, touched(output / "seen.part.mp4"))
            if ending.killed:
                tally.killed(after_output=ending.after_output)
                tally.left_after_kills += left_in(output)
            tally.note("the next run", [ending.problem] if ending.problem else [])
            tally.note("after it", video_problems(output))
        tally.note("in the end", differences(references[masks], output, masks))
        tally.left_in_the_end += left_in(output)
        tally.finished += 1


def video_problems(output: Path) -> list[str]:
    """Return what is wrong with a folder of outputs after a kill or a run."""
    found = problems_in(output)
    part, receipt = output / "seen.part.mp4", output / "seen.receipt.json"
    if part.exists() and b"moof" in part.read_bytes() and not frames_of(part, cut=True):
        found.append("the unfinished video cannot be played")
    if receipt.exists():
        found += receipt_problems(json.loads(receipt.read_text()))
    return found


def receipt_problems(receipt: dict[str, Any]) -> list[str]:
    """Check that a receipt says that a run is in progress, or contains the hashes of existing outputs."""
    if receipt["status"] == "running":
        return []
    if receipt["status"] != "done":
        return [f"the receipt says {receipt['status']}"]
    files = [entry for entry in receipt["outputs"].values() if "sha256" in entry]
    wrong = [
        Path(e["path"]).name for e in files if not Path(e["path"]).exists() or sha256_of(Path(e["path"])) != e["sha256"]
    ]
    return [f"{name} is not what the receipt says" for name in wrong]


def differences(reference: Path, output: Path, masks: str) -> list[str]:
    """List differences from an undisturbed run: frames, masks and lines except their times, and missing files."""
    pairs = [
        ("seen.mp4", frames_of),
        ("frames.jsonl", _lines),
        ("areas.png", Path.read_bytes),
        ("seen.receipt.json", _counts),
        (masks, frames_of if masks.endswith(".mkv") else _pictures),
    ]
    return [
        f"{name} differs from the undisturbed run's"
        for name, what in pairs
        if not _same(reference / name, output / name, what)
    ]


def _same(first: Path, second: Path, what: Any) -> bool:
    return bool(second.exists() and what(first) == what(second))


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.endswith("_ms")} for line in lines]


def _counts(path: Path) -> tuple[str, dict[str, Any]]:
    receipt = json.loads(path.read_text())
    return receipt["status"], receipt["frames"]


def _pictures(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.png")}


def _words(folder: Path, output: Path, masks: str) -> Words:
    words: Words = ["rcil_serve", "video", folder / "site" / "clip.mp4", "-m", folder / "model.onnx"]
    words += ["-o", output / "seen.mp4", "--masks", output / masks, "--jsonl", output / "frames.jsonl"]
    return [*words, "--timeline", output / "areas.png", "--threads", "1", "--device", "cpu"]
