"""Video files that are decoded in another process, because a hostile file can crash a decoder."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import av
import numpy as np

from rcil_serve.runtime.planes import ColourSpace, Picture, Planes, bytes_of
from rcil_serve.stream.frames import Counts, Frame, Item, Selection, Sound, SourceError, SourceInfo
from rcil_serve.stream.sources.accelerated import CPU
from rcil_serve.stream.sources.tracks import unpacked_track

SLOTS, LARGE_SLOTS, LARGE = 16, 4, 2**23
"""Number of frames in the shared memory, and for frames of more than `LARGE` bytes."""
_CHILD = (
    "import sys; sys.path[:] = {path!r}; from rcil_serve.stream.sources.decoder_process import main; main({memory})"
)


class IsolatedSource:
    """A `FileSource` in a process of its own. If that process crashes, the source ends early and says so.

    Frames come through shared memory. They are not copied, unless so many are in use that decoding would have to wait.

    Args:
        path: Path of the file.
        name: Name for messages.
        selection: Which frames to process.
        with_sound: Whether to deliver sound and subtitles.
        decoder: See `open_decoded`.
    """

    def __init__(
        self, path: str, name: str, selection: Selection, *, with_sound: bool = True, decoder: str = CPU
    ) -> None:
        self._name = name
        self.counts = Counts()
        self._memory = _shared_file()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD.format(path=sys.path, memory=self._memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._memory],
            start_new_session=True,  # Ctrl-C is for this process only
        )
        try:
            self._send(
                {
                    "path": path,
                    "name": name,
                    "selection": asdict(selection),
                    "with_sound": with_sound,
                    "decoder": decoder,
                }
            )
            self.info = self._opened()
            height, width = self.info.size
            self._bytes = height * width * 3
            self._slots = slots_of(self._bytes)
            self._view = memoryview(mmap.mmap(self._memory, self._bytes * self._slots))
        except BaseException:
            self.close()
            raise
        self._in_use = 0

    def _opened(self) -> SourceInfo:
        found = self._receive()
        if found is None:
            raise SourceError(
                f"{self._name} crashes the decoder ({self._ending()})",
                "The file is damaged or hostile. Do not open it with other programs that matter.",
            )
        tracks = tuple(unpacked_track(fields, self._payload(fields["bytes"])) for fields in found["tracks"])
        return SourceInfo(
            name=self._name,
            size=(found["size"][0], found["size"][1]),
            rate=Fraction(found["rate"]),
            time_base=Fraction(found["time_base"]),
            frames=found["frames"],
            tracks=tracks,
            aspect=Fraction(found["aspect"]),
            space=ColourSpace(**found["space"]),
        )

    def __iter__(self) -> Iterator[Item]:
        read = 0
        while (found := self._receive()) is not None:
            if found["kind"] == "end":
                return
            if found["kind"] == "sound":
                yield self._sound(found)
            else:
                read += 1
                picture = self._picture(found["slot"], found["space"])
                yield Frame(found["index"], found["pts"], found["time"], picture, time.perf_counter())
        self.counts.problems.append(f"{self._name} crashes the decoder ({self._ending()}) after {read} frames")

    def _picture(self, slot: int, space: dict[str, Any] | None) -> Picture:
        """The frame in a slot; the slot is free again when nobody uses the frame any more."""
        count = self._bytes if space is None else bytes_of(self.info.size)
        flat = np.frombuffer(self._view, np.uint8, count, slot * self._bytes)
        if self._in_use >= self._slots - 2:
            flat = flat.copy()
            self._free(slot)
        else:
            self._in_use += 1
            weakref.finalize(flat, self._release, slot).atexit = False
        if space is None:
            return flat.reshape(*self.info.size, 3)
        return Planes.within(flat, self.info.size, ColourSpace(**space))

    def _release(self, slot: int) -> None:
        self._in_use -= 1
        self._free(slot)

    def _free(self, slot: int) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            try:
                os.write(stdin.fileno(), bytes([slot]))
            except OSError:  # the process has ended
                return

    def _sound(self, found: dict[str, Any]) -> Sound:
        packet: Any = av.Packet(self._payload(found["bytes"]))
        packet.pts, packet.dts, packet.duration = found["pts"], found["dts"], found["duration"]
        packet.time_base, packet.is_keyframe = Fraction(found["time_base"]), found["key"]
        return Sound(packet, found["track"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:  # `_receive` finds the process ended
            return

    def _receive(self) -> dict[str, Any] | None:
        """The next message; None if the process crashed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        if found["kind"] == "error":
            raise SourceError(found["message"], found["hint"])
        if found["kind"] == "failed":
            raise RuntimeError(found["message"])
        for name, value in found.get("counts", {}).items():
            setattr(self.counts, name, [(at, jump) for at, jump in value] if name == "jumps" else value)
        return found

    def _payload(self, count: int) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.read(count)

    def _ending(self) -> str:
        code = self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """See `Source.stop`. A file never blocks for long."""

    def close(self) -> None:
        """See `Source.close`. Frames that are still in use stay valid."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def slots_of(count: int) -> int:
    """Number of frames of `count` bytes in the shared memory."""
    return SLOTS if count <= LARGE else LARGE_SLOTS


def _shared_file() -> int:
    """Descriptor of a file in memory, without a name, that another process can map too."""
    if sys.platform == "linux":
        return os.memfd_create("rcil-frames")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
