"""Images that are decoded in another process, because a hostile file can crash a decoder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import numpy as np

from rcil.core.image_formats import read_any_rgb
from rcil.core.images import Image
from rcil.core.reading import DataError

_CHILD = "import sys; sys.path[:] = {path!r}; from rcil_serve.stream.sources.image_process import main; main()"


class ImageProcess:
    """Reads images like `read_any_rgb`. An image that crashes the process is a `DataError`, and the next is read."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, path: Path) -> Image:
        """An image as [H, W, 3] RGB."""
        process = self._process = self._process or _started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(os.fspath(path)).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise self._crash(path)
        found = json.loads(line)
        if "message" in found:
            raise DataError(found["message"], found["hint"])
        pixels = bytearray(found["size"][0] * found["size"][1] * 3)
        if not _fill(process.stdout, memoryview(pixels)):
            raise self._crash(path)
        return np.frombuffer(pixels, np.uint8).reshape(*found["size"], 3)

    def _crash(self, path: Path) -> DataError:
        assert self._process is not None
        code = self._process.wait()
        self.close()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return DataError(
            f"{path} crashes the decoder ({how})",
            "The file is damaged or hostile. Do not open it with other programs that matter.",
        )

    def close(self) -> None:
        """End the process; the next image starts another one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(path=sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the parent only
    )


def _fill(file: IO[bytes], memory: memoryview) -> bool:
    """Read until the memory is full; False if the file ends before."""
    while memory:
        count = file.readinto(memory)  # type: ignore[attr-defined]
        if not count:
            return False
        memory = memory[count:]
    return True


def main() -> None:
    """Decode the images that standard input names, one path per line, until it ends."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    for line in sys.stdin.buffer:
        try:
            pixels = read_any_rgb(Path(json.loads(line)))
        except DataError as error:
            out.write(json.dumps({"message": error.message, "hint": error.hint}).encode() + b"\n")
        else:
            out.write(json.dumps({"size": pixels.shape[:2]}).encode() + b"\n")
            out.write(pixels.data)
        out.flush()
