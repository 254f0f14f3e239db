"""Image files as a source: a folder, a pattern, or a list."""

from __future__ import annotations

import contextlib
import glob
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from rcil.core.image_formats import READABLE, read_any_rgb
from rcil.core.images import Image
from rcil.core.reading import DataError, read_bytes
from rcil_serve.stream.frames import Counts, Frame, Item, Selection, SourceError, SourceInfo
from rcil_serve.stream.sources.container import fitted
from rcil_serve.stream.sources.image_process import ImageProcess


class PictureSource:
    """Image files as frames. Files that cannot be read are counted as corrupt.

    Args:
        paths: The files, in order.
        name: Name of the source for messages.
        rate: Frame rate in fps.
        selection: Which files to process.
        isolated: Whether to decode in another process, which a hostile file may crash.
    """

    def __init__(
        self, paths: Sequence[Path], name: str, rate: Fraction, selection: Selection, *, isolated: bool = False
    ) -> None:
        self._paths, self._selection = paths, selection
        self.counts = Counts()
        self._process = ImageProcess() if isolated else None
        self._read = read_any_rgb if self._process is None else self._process.read
        try:
            first = self._first(name)
        except BaseException:
            self.close()
            raise
        self.info = SourceInfo(
            name=name,
            size=(first.shape[0], first.shape[1]),
            rate=rate,
            time_base=1 / rate,
            frames=selection.expected(len(paths), float(rate)),
        )

    def _first(self, name: str) -> Image:
        for path in self._paths:
            with contextlib.suppress(DataError):
                return self._read(path)
        hint = f"Use {', '.join(READABLE)} files."
        raise SourceError(f"no image of {name} can be read; the first is {self._paths[0]}", hint)

    def __iter__(self) -> Iterator[Item]:
        for index, path in enumerate(self._paths):
            seconds = float(index * self.info.time_base)
            if self._selection.over(seconds, self.counts.read):
                return
            if not self._selection.wants(index, seconds, self.counts.read):
                self.counts.left_out += 1
                continue
            try:
                pixels = fitted(self._read(path), self.info.size)
            except DataError as error:
                self.counts.corrupt += 1
                self.counts.problems.append(error.message)
                continue
            self.counts.read += 1
            yield Frame(index, index, seconds, pixels, time.perf_counter(), str(path))

    def stop(self) -> None:
        """See `Source.stop`. Image files never block."""

    def close(self) -> None:
        """See `Source.close`."""
        if self._process is not None:
            self._process.close()


def find_pictures(text: str) -> list[Path] | None:
    """Find the image files of a folder, a pattern, a list or a single image; None if `text` is none of these."""
    path = Path(text)
    if any(sign in text for sign in "*?[") and not path.exists():
        matches = sorted(Path(match) for match in glob.glob(text, recursive=True))  # noqa: PTH207 -- takes any pattern
        images = [match for match in matches if match.suffix.lower() in READABLE]
        return _some(images, f"no image matches {text}", "Quote the pattern and check the folder.")
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in READABLE and file.is_file())
        return _some(found, f"{path} holds no images", f"Use a folder with {', '.join(READABLE)} files.")
    if path.suffix.lower() == ".txt":
        lines = read_bytes(path, "Use a text file with one image per line.").decode("utf-8", "replace").splitlines()
        listed = [path.parent / line.strip() for line in lines if line.strip() and not line.startswith("#")]
        return _some(listed, f"{path} lists no images", "Write one image file per line.")
    if path.suffix.lower() in READABLE:
        return [path]
    return None


def _some(paths: list[Path], message: str, hint: str) -> list[Path]:
    if not paths:
        raise SourceError(message, hint)
    return paths
