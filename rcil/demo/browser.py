"""Take a screenshot of the web page of `rcil-serve http`, if a browser is installed."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rcil.core.errors import RcilError, first_line
from rcil.core.files import replacing
from rcil.core.log import log

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1120, 700)
PATIENCE_MS = 60_000


def photograph_page(target: Path, image: Path, model: Path, previous: Path) -> bool:
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
    with replacing(target) as part:
        part.write_bytes(picture)
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
        log.warning("no photograph of the page: %s", first_line(error))
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
