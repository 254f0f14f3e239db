"""The process that decodes a file for `IsolatedSource`: JSON lines on standard output, frames in shared memory."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import sys
from collections import deque
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from rcil.hardware.cpu import keep_freed_memory
from rcil_serve.runtime.planes import Picture, Plane, Planes
from rcil_serve.stream.frames import Counts, Frame, Selection, SourceError
from rcil_serve.stream.priority import yield_to_inference
from rcil_serve.stream.sources.file import FileSource
from rcil_serve.stream.sources.isolated import slots_of
from rcil_serve.stream.sources.tracks import packed_track

SHARED = (
    "read",
    "corrupt",
    "left_out",
    "deinterlaced",
    "tone_mapped",
    "discontinuities",
    "jumps",
    "notices",
    "problems",
)
"""Counts that are made here; the others are made by the pipeline."""


def main(memory: int) -> None:
    """Serve the file that the first line of standard input names, until it ends or nobody listens any more.

    Args:
        memory: Descriptor of the shared memory.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    yield_to_inference()
    keep_freed_memory()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    request = json.loads(_line(0))
    try:
        source = FileSource(
            request["path"],
            request["name"],
            Selection(**request["selection"]),
            with_sound=request["with_sound"],
            decoder=request["decoder"],
        )
        _serve(source, memory, out)
    except SourceError as error:
        _send(out, {"kind": "error", "message": error.message, "hint": error.hint})
    except Exception as error:
        _send(out, {"kind": "failed", "message": f"{type(error).__name__}: {error}"})


def _serve(source: FileSource, memory: int, out: BinaryIO) -> None:
    info = source.info
    packed = [packed_track(track) for track in info.tracks]
    fields = {
        "kind": "info",
        "size": info.size,
        "rate": str(info.rate),
        "time_base": str(info.time_base),
        "frames": info.frames,
        "aspect": str(info.aspect),
        "space": asdict(info.space),
        "tracks": [track for track, _ in packed],
        "counts": _counts(source.counts),
    }
    size = info.size[0] * info.size[1] * 3
    free = deque(range(slots_of(size)))
    try:
        os.ftruncate(memory, size * len(free))
        shared = mmap.mmap(memory, size * len(free))
    except OSError as error:
        raise SourceError(
            f"there is no shared memory for frames of {info.size[1]}x{info.size[0]} pixels: {error.strerror}",
            "Raise the limits of this process (ulimit -f and -v), or free some memory.",
        ) from error
    frames = np.frombuffer(shared, np.uint8).reshape(len(free), size)
    _send(out, fields, *(blob for _, blob in packed))
    for item in source:
        if isinstance(item, Frame):
            slot = _free_slot(free)
            stamp = {"index": item.index, "pts": item.pts, "time": item.time, "space": _put(frames[slot], item.picture)}
            _send(out, {"kind": "frame", "slot": slot, **stamp, "counts": _counts(source.counts)})
        else:
            _send_sound(out, item.packet, item.track)
    _send(out, {"kind": "end", "counts": _counts(source.counts)})


def _put(slot: Plane, picture: Picture) -> dict[str, Any] | None:
    """Copy a picture to shared memory; return its colour space, or None if it is RGB."""
    if isinstance(picture, Planes):
        picture.copy_to(Planes.within(slot, picture.size, picture.space))
        return asdict(picture.space)
    slot.reshape(picture.shape)[:] = picture
    return None


def _send_sound(out: BinaryIO, packet: Any, track: int) -> None:
    data = bytes(packet)
    fields = {
        "kind": "sound",
        "track": track,
        "pts": packet.pts,
        "dts": packet.dts,
        "duration": packet.duration,
        "time_base": str(packet.time_base),
        "key": packet.is_keyframe,
        "bytes": len(data),
    }
    _send(out, fields, data)


def _free_slot(free: deque[int]) -> int:
    """Take a free slot. The other process names each slot that it has finished in one byte."""
    while not free:
        data = os.read(0, 64)
        if not data:
            sys.exit(0)
        free.extend(data)
    return free.popleft()


def _counts(counts: Counts) -> dict[str, Any]:
    found = asdict(counts)
    return {name: found[name] for name in SHARED}


def _send(out: BinaryIO, message: dict[str, Any], *payloads: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        out.write(json.dumps(message).encode() + b"\n" + b"".join(payloads))
        out.flush()


def _line(file: int) -> bytes:
    """Read one line without reading more, as bytes follow that are read later."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(file, 1)
        if not data:
            sys.exit(0)
        line += data
    return bytes(line)
