"""Run `rcil-export` and `rcil-serve` as separate processes, as a user would, and take a screenshot of the web page."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError, first_line
from rcil.core.files import write_file
from rcil.core.log import log

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1120, 700)
PATIENCE_MS = 60_000


def export(
    model: Path, parent: Path, site: Path, output: Path, size: tuple[int, int], force: list[str]
) -> dict[str, Any]:
    """Export with `rcil-export` at the size of the site's images; returns a summary of its report."""
    height, width = size
    target = "onnx,engine" if find_spec("tensorrt_rtx") or find_spec("tensorrt") else "onnx"
    options = ["--size", f"{height}x{width}", "--target", target, "--images", str(site), "--previous", str(parent)]
    _call("rcil_export", "export", str(model), "-o", str(output), *options, *force)
    report: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
    items = {item["key"]: item["passed"] for result in report["results"] for item in result["items"]}
    return {"ok": report["ok"], "target": target, "checks": items}


def show_clip(output: Path, site: Path, deployed: Path, size: tuple[int, int]) -> dict[str, Any]:
    """Segment the clip of the site and compare both models on it; returns the number of frames and the fps."""
    clip, video, before = site / "clip.mp4", output / "video.mp4", output / "deployed.onnx"
    model = output / "export" / "model.onnx"
    extras = ["--jsonl", str(output / "frames.jsonl"), "--timeline", str(output / "timeline.png"), "--legend"]
    _call("rcil_serve", "video", str(clip), "--model", str(model), "-o", str(video), *extras)
    _call("rcil_export", "onnx", str(deployed), "-o", str(before), "--size", f"{size[0]}x{size[1]}")
    _call("rcil_serve", "diff", str(before), str(model), str(clip), "-o", str(output / "diff"))
    receipt: dict[str, Any] = json.loads(video.with_suffix(".receipt.json").read_text(encoding="utf-8"))
    return {"frames": receipt["frames"]["written"], "frames_a_second": receipt["frames_a_second"]}


def _call(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RcilError(
            f"{module} {arguments[0]} failed: {done.stderr.strip()}", "Run the command separately with --debug."
        )


def screenshot_page(target: Path, image: Path, model: Path, previous: Path) -> bool:
    """Serve both models, open an image in the page and save a screenshot; returns False without a working browser.

    Args:
        target: The PNG file to write.
        image: The image to segment.
        model: The ONNX file to serve.
        previous: The ONNX file to compare with.
    """
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None or find_spec("playwright") is None:
        return False
    with _serving(model, previous) as address:
        picture = _screenshot(program, address, image)
    if picture is None:
        return False
    write_file(target, picture)
    return True


def _screenshot(program: str, address: str, image: Path) -> bytes | None:
    """The screenshot as PNG bytes; None if the browser fails."""
    from playwright.sync_api import Error, expect, sync_playwright

    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
            page.goto(address)
            page.set_input_files("#file", str(image))
            expect(page.locator("#changed")).to_contain_text("%", timeout=PATIENCE_MS)
            return page.screenshot()
    except (Error, AssertionError) as error:
        log.warning("no screenshot of the page: %s", first_line(error))
        return None


@contextlib.contextmanager
def _serving(model: Path, previous: Path) -> Iterator[str]:
    """Start a server and yield its address; it is stopped at the end."""
    command = [sys.executable, "-m", "rcil_serve", "http", "--model", str(model), "--previous", str(previous)]
    server = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        yield _address(server)
    finally:
        server.terminate()
        server.communicate()


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
        said.append(line.strip())
    raise RcilError(f"rcil_serve http failed: {' '.join(said)}", "Run the command separately with --debug.")
