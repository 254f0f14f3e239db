"""Endless recording: outputs are cut into files of limited length, and the oldest files are deleted."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError
from rcil.core.log import log
from rcil_serve.stream.frames import Frame, Sound, SourceInfo
from rcil_serve.stream.outputs.growing_file import PART
from rcil_serve.stream.outputs.movie import cut_to_fragments
from rcil_serve.stream.outputs.sink import FileSink, Targets
from rcil_serve.stream.pipeline import SegmentedFrame

STAMP = "%Y%m%dT%H%M%SZ"
STAMPED = r"-\d{8}T\d{6}Z"
HINT = "Choose another path for it."
CHECK_SECONDS = 2.0
"""Time between two looks at the size of a recording."""
LATE_SECONDS = 1.0
"""Time for which a file stays open after its last frame, because its last sound may come late."""
MAX_AHEAD = 2000
"""Audio packets that wait for the next file."""
LISTED = 100
"""Number of closed files that the receipt names."""
TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True)
class Recording:
    """How long each file is, and how much is kept."""

    seconds: float
    """Length of a file."""
    keep: int | None = None
    """Bytes of all files together; the oldest are deleted beyond it. None keeps everything."""


def parse_duration(text: str) -> float:
    """Parse `10m`, `90s`, `1.5h` or a number of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    seconds = float(found[1]) * TIMES[found[2] or "s"] if found else 0.0
    if seconds < 1:
        raise ConfigError(f"'{text}' is not the length of a segment", "Write 10m, 90s or 1h; at least one second.")
    return seconds


def parse_bytes(text: str) -> int:
    """Parse `50GB`, `500 MB`, `2TiB` or a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?", text.strip().upper())
    size = round(float(found[1]) * SIZES[found[2]]) if found else 0
    if size < 1:
        raise ConfigError(f"'{text}' is not a size", "Write 50GB, 500MB or 2TB.")
    return size


def parse_recording(segment: str | None, keep: str | None) -> Recording | None:
    """Parse the options `--segment` and `--keep`; None if there is neither."""
    if segment is None:
        if keep is not None:
            raise ConfigError("--keep deletes whole segments", "Set their length with --segment, for example 10m.")
        return None
    return Recording(parse_duration(segment), None if keep is None else parse_bytes(keep))


class Archive:
    """The files of a recording: `gate-20260131T120000Z.mp4` for the target `gate.mp4`, with the time of their start.

    Files of one start belong together and are deleted together. Only files with such names are ever touched.

    Args:
        targets: The files that were asked for.
        keep: See `Recording.keep`.
    """

    def __init__(self, targets: Targets, keep: int | None) -> None:
        self._targets, self._keep = targets, keep
        self.deleted = 0
        """Number of starts whose files were deleted."""
        self._lock = threading.Lock()

    def check(self, inputs: Sequence[Path]) -> None:
        """Raise if the disk is too small for what is to be kept, or if an input has the name of one of the files."""
        for path in inputs:
            for target in self._targets.as_dict().values():
                same = path.absolute().parent == target.absolute().parent
                if same and re.fullmatch(re.escape(target.stem) + STAMPED + re.escape(target.suffix), path.name):
                    raise ConfigError(f"{path} is an input, and has the name of a segment of {target}", HINT)
        if self._keep is None:
            return
        used = sum(_size(path) for path in (*self._files(part=False), *self._files(part=True)))
        folder = next(iter(self._targets.as_dict().values())).absolute().parent
        folder = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        room = used + shutil.disk_usage(folder).free
        if room < self._keep:
            raise ConfigError(
                f"--keep is {self._keep / 1e9:.1f} GB, and the disk has room for {room / 1e9:.1f} GB",
                "Choose a smaller --keep, or another disk.",
            )

    def at(self, moment: datetime) -> Targets:
        """Names for files that start at this moment, or a second after the newest files: names keep the order."""
        stamps = [_stamp_of(path) for part in (False, True) for path in self._files(part=part)]
        if stamps:
            newest = datetime.strptime(max(stamps), STAMP).replace(tzinfo=UTC)
            moment = max(moment, newest + timedelta(seconds=1))
        stamp = moment.strftime(STAMP)
        return replace(self._targets, **{name: _stamped(path, stamp) for name, path in self._targets.as_dict().items()})

    def recover(self) -> list[Path]:
        """Complete files that a killed process left unfinished, and return them. Nothing that can be played is lost."""
        recovered = []
        for part in list(self._files(part=True)):
            match part.suffix:
                case ".mp4":
                    cut_to_fragments(part)
                    filled = _has_frames(part)
                case ".jsonl":
                    filled = _cut_to_lines(part) > 0
                case _:
                    filled = part.stat().st_size > 0
            if filled:
                recovered.append(part.replace(part.with_name(part.name.replace(f"{PART}{part.suffix}", part.suffix))))
            else:
                part.unlink()
        return recovered

    def limit(self) -> None:
        """Delete the oldest closed files until all files, with those that are being written, fit."""
        if self._keep is not None:
            with self._lock:  # both the thread that writes and the one that completes files call this
                self._limit(self._keep)

    def _limit(self, keep: int) -> None:
        sizes = {path: _size(path) for path in self._files(part=False)}
        total = sum(sizes.values()) + sum(_size(path) for path in self._files(part=True))
        for stamp in sorted({_stamp_of(path) for path in sizes}):
            if total <= keep:
                return
            for path in [path for path in sizes if _stamp_of(path) == stamp]:
                path.unlink(missing_ok=True)
                total -= sizes[path]
                log.info("deleted %s", path)
            self.deleted += 1

    def _files(self, *, part: bool) -> Iterator[Path]:
        for path in self._targets.as_dict().values():
            ending = re.escape((PART if part else "") + path.suffix)
            wanted = re.compile(re.escape(path.stem) + STAMPED + ending)
            with contextlib.suppress(FileNotFoundError):
                yield from [found for found in path.parent.iterdir() if wanted.fullmatch(found.name)]


class SegmentedSink:
    """Writes one set of files after another; see `FileSink`.

    A file ends with the first frame at or after its length. Each file starts at time 0, with its own sound: packets
    that arrive before the frames of their file wait for it, and packets that arrive late still go to theirs. Files are
    completed in another thread, because a disk may need longer than a live source waits.

    Args:
        archive: Names and deletes the files.
        seconds: Length of a file.
        info: Description of the source.
        open_sink: Opens the outputs; given their names and the time in the source at which they start.
        start: Time in the source at which the recording starts.
    """

    def __init__(
        self,
        archive: Archive,
        seconds: float,
        info: SourceInfo,
        open_sink: Callable[[Targets, float], FileSink],
        start: float = 0.0,
    ) -> None:
        self._archive, self._seconds, self._open = archive, seconds, open_sink
        self._live, self._begun, self._start = info.live, datetime.now(UTC), start
        self._checked = time.monotonic()
        self._closed: deque[str] = deque(maxlen=LISTED)
        self._count = 0
        self._ahead: list[Sound] = []
        self._late: tuple[FileSink, Targets] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rcil-segments")
        self._finishing: deque[Future[None]] = deque()
        for path in archive.recover():
            log.warning("%s was left by a run that was killed; it was completed", path)
        archive.limit()
        self._next(start)
        self._from = -math.inf  # the first file also takes sound from before its first frame

    def _next(self, start: float, age: float = 0.0) -> None:
        """Open the files that start at this time in the source, with a frame that was received `age` seconds ago."""
        passed = timedelta(seconds=start - self._start)
        now = datetime.now(UTC) - timedelta(seconds=age) if self._live else self._begun + passed
        names = self._archive.at(now)
        self._from, self._until = start, start + self._seconds
        self._now = self._open(names, start), names

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`."""
        if seen.frame.time >= self._until:
            self._cut(seen.frame)
        elif seen.frame.time > self._from + LATE_SECONDS:
            self._finish_late()
        self._now[0].write(seen)
        while self._finishing and self._finishing[0].done():
            self._finishing.popleft().result()
        if time.monotonic() - self._checked > CHECK_SECONDS:
            self._checked = time.monotonic()
            self._archive.limit()

    def _cut(self, first: Frame) -> None:
        """Start new files. The old ones stay open for a moment, because their last sound may still come."""
        self._finish_late()
        self._late = self._now
        self._next(first.time, time.perf_counter() - first.ready)
        ahead, self._ahead = self._ahead, []
        for sound in ahead:
            self.write_sound(sound)

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""
        at = _time_of(sound)
        if at is not None and at >= self._until and len(self._ahead) < MAX_AHEAD:
            self._ahead.append(sound)
        elif at is None or at >= self._from:
            self._now[0].write_sound(sound)
        elif self._late is not None:
            self._late[0].write_sound(sound)

    def _finish_late(self) -> None:
        if self._late is not None:
            self._finishing.append(self._pool.submit(self._finish, *self._late))
            self._late = None

    def _finish(self, sink: FileSink, names: Targets) -> None:
        sink.finish()
        self._count += 1
        self._closed += [str(path) for path in names.as_dict().values()]
        self._archive.limit()

    def finish(self) -> None:
        """Complete all open files."""
        self._finish_late()
        for sound in self._ahead:
            self._now[0].write_sound(sound)
        self._pool.shutdown()
        for done in self._finishing:
            done.result()
        self._finish(*self._now)

    def abandon(self) -> None:
        """Close the open files after an error; what was written stays playable."""
        self._pool.shutdown()
        for sink, _ in filter(None, (self._late, self._now)):
            sink.abandon()

    def as_document(self) -> dict[str, Any]:
        """Facts for the receipt."""
        facts = {"closed": self._count, "deleted": self._archive.deleted, "last": list(self._closed)}
        return {"segments": facts}


def _stamped(path: Path, stamp: str) -> Path:
    return path.with_name(f"{path.stem}-{stamp}{path.suffix}")


def _stamp_of(path: Path) -> str:
    found = re.search(r"-(\d{8}T\d{6}Z)\.", path.name)
    return found[1] if found else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _time_of(sound: Sound) -> float | None:
    """Time of an audio packet in the source, in seconds."""
    stamp = sound.packet.dts if sound.packet.pts is None else sound.packet.pts
    return None if stamp is None else float(stamp * sound.packet.time_base)


def _has_frames(path: Path) -> bool:
    """Whether an MP4 file of whole boxes holds a fragment, and not only its description."""
    at, length = 0, path.stat().st_size
    with path.open("rb") as file:
        while at + 8 <= length:
            file.seek(at)
            head = file.read(16)
            if head[4:8] == b"mdat":
                return True
            size = int.from_bytes(head[:4], "big")
            at += max(8, int.from_bytes(head[8:16], "big") if size == 1 else size)
    return False


def _cut_to_lines(path: Path) -> int:
    """Remove an incomplete last line; return how many are left."""
    lines = path.read_bytes().splitlines(keepends=True)
    while lines and not _is_json(lines[-1]):
        lines.pop()
    path.write_bytes(b"".join(lines))
    return len(lines)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n")
