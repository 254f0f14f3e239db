"""Deinterlaces frames, and maps HDR frames to the range of SDR, as the models and players expect them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av.error
import av.filter

from rcil_serve.stream.frames import Counts
from rcil_serve.stream.sources.tone_mapping import HLG, PQ, write_cube

HDR = {PQ: "PQ", HLG: "HLG"}


class FrameFilters:
    """Passes progressive SDR frames through, and filters all others.

    Args:
        name: Name of the source for notices.
        counts: Records how many frames were filtered.
    """

    def __init__(self, name: str, counts: Counts) -> None:
        self._name, self._counts = name, counts
        self._deinterlace = _Filter(lambda frame, folder: [("bwdif", "mode=send_frame:deint=interlaced")])
        self._tone_map = _Filter(_tone_map)

    def of(self, frame: Any) -> Iterator[Any]:
        """Yield the filtered frames that are ready; an interlaced frame needs the next one."""
        if frame.interlaced_frame:
            if not self._counts.deinterlaced:
                self._counts.notices.append(f"{self._name} is interlaced; its frames are deinterlaced")
            self._counts.deinterlaced += 1
        if frame.interlaced_frame or self._deinterlace.is_open:
            for made in self._deinterlace.of(frame):
                yield from self._mapped(made)
        else:
            yield from self._mapped(frame)

    def flush(self) -> Iterator[Any]:
        """Yield the remaining frames at the end of the source."""
        for made in self._deinterlace.drain():
            yield from self._mapped(made)

    def _mapped(self, frame: Any) -> Iterator[Any]:
        transfer = int(frame.color_trc)
        if transfer not in HDR:
            yield frame
            return
        if not self._counts.tone_mapped:
            self._counts.notices.append(f"{self._name} is HDR ({HDR[transfer]}); its frames are tone-mapped to SDR")
        self._counts.tone_mapped += 1
        yield from self._tone_map.of(frame)


class _Filter:
    """A chain of FFmpeg's filters that is rebuilt whenever the frames change their kind.

    Args:
        chain: Returns names and arguments of the filters for a frame; may write files that they read when they open.
    """

    def __init__(self, chain: Callable[[Any, Path], Sequence[tuple[str, str]]]) -> None:
        self._chain = chain
        self._graph: Any = None
        self._kind: tuple[Any, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether frames are inside, or may be."""
        return self._graph is not None

    def of(self, frame: Any) -> Iterator[Any]:
        """Filter a frame; yield those that are ready."""
        kind = (
            frame.width,
            frame.height,
            frame.format.name,
            int(frame.colorspace),
            int(frame.color_range),
            int(frame.color_trc),
            frame.time_base,
        )
        if kind != self._kind:
            yield from self.drain()
            self._graph, self._kind = self._open(frame), kind
        self._graph.push(frame)
        yield from self._pulled()

    def drain(self) -> Iterator[Any]:
        """Yield what is left and close the chain."""
        if self._graph is not None:
            self._graph.push(None)
            yield from self._pulled()
            self._graph, self._kind = None, ()

    def _pulled(self) -> Iterator[Any]:
        while True:
            try:
                yield self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return

    def _open(self, frame: Any) -> Any:
        base = Fraction(frame.time_base)
        graph = av.filter.Graph()
        buffer = (
            f"video_size={frame.width}x{frame.height}:pix_fmt={frame.format.name}:time_base={base}"
            f":colorspace={int(frame.colorspace)}:range={int(frame.color_range)}"
        )
        with tempfile.TemporaryDirectory() as folder:
            chain = [("buffer", buffer), *self._chain(frame, Path(folder)), ("settb", str(base)), ("buffersink", None)]
            graph.link_nodes(*(graph.add(name, arguments) for name, arguments in chain)).configure()
        return graph


def _tone_map(frame: Any, folder: Path) -> list[tuple[str, str]]:
    """Filters that convert a frame to RGB and look its colours up in a table, which FFmpeg reads from a file."""
    path = folder / "tones.cube"
    write_cube(path, int(frame.color_trc))
    escaped = path.as_posix().replace("\\", "\\\\").replace(":", "\\:").replace("'", "\\'")
    return [("format", "gbrp10"), ("lut3d", f"file={escaped}:interp=tetrahedral"), ("format", "rgb24")]
