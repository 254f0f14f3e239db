"""Checks whether files are complete, by their kind."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import yaml

from rcil.core.errors import RcilError

PNG_END = b"IEND\xaeB`\x82"
SEGMENT = b"\x18\x53\x80\x67"
"""Start of the Segment element, which holds the content of a Matroska file; FFmpeg stores its size in eight bytes."""


def is_temporary(path: Path) -> bool:
    """Whether a path, relative to the inspected folder, has the name of an unfinished file."""
    return any(part.startswith(".") or ".part." in part for part in path.parts)


def problems_in(folder: Path) -> list[str]:
    """List problems of the files with final names in a folder, except TensorBoard's, which grow."""
    found = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not is_temporary(relative) and "tfevents" not in path.name:
            problem = problem_of(path)
            if problem is not None:
                found.append(f"{relative}: {problem}")
    return found


def problem_of(path: Path) -> str | None:
    """Why a file is not complete; None if it is."""
    check = CHECKS.get(path.suffix)
    if check is None:
        return f"nobody knows how to check {path.suffix or 'a file without ending'}"
    try:
        check(path)
    except (RcilError, OSError, ValueError, KeyError, yaml.YAMLError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def hashes(folder: Path, pattern: str) -> dict[str, str]:
    """SHA-256 of the files that match a pattern, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob(pattern))}


def _checkpoint(path: Path) -> None:
    from rcil.checkpoint.file import load

    load(path)


def _state(path: Path) -> None:
    from rcil.training.state import read_state

    read_state(path)


def _graph(path: Path) -> None:
    import onnx

    from rcil_export.graph.onnx_file import read_onnx

    try:
        onnx.checker.check_model(read_onnx(path).document)
    except onnx.checker.ValidationError as error:
        raise ValueError(f"not a valid graph: {error}") from error


def _json(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8"))


def _json_lines(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError("the last line is cut off")
    for line in text.splitlines():
        json.loads(line)


def _yaml(path: Path) -> None:
    if not isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict):
        raise ValueError("no mapping")


def _table(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError("the last line is cut off")
    header, *rows = csv.reader(text.splitlines())
    if any(len(row) != len(header) for row in rows):
        raise ValueError("a line is cut off")


def _page(path: Path) -> None:
    if not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise ValueError("the page is truncated")


def _picture(path: Path) -> None:
    from rcil.core.images import read_rgb

    if path.suffix == ".png" and not path.read_bytes().endswith(PNG_END):
        raise ValueError("the end of the PNG is missing")
    read_rgb(path)


def _movie(path: Path) -> None:
    data = path.read_bytes()
    ended = _mp4_ends(data) if path.suffix == ".mp4" else _mkv_ends(data)
    if not ended or not frames_of(path):
        raise ValueError("the video is truncated")


def _mp4_ends(data: bytes) -> bool:
    """Whether the boxes of an MP4 fill the file, and a fragmented one ends with its index; decoders need neither."""
    offset, kinds = 0, []
    while offset + 8 <= len(data):
        size = int.from_bytes(data[offset : offset + 4], "big")
        size = int.from_bytes(data[offset + 8 : offset + 16], "big") if size == 1 else size
        kinds.append(data[offset + 4 : offset + 8])
        offset += max(size, 8)
    return offset == len(data) and bool(kinds) and (b"moof" not in kinds or kinds[-1] == b"mfra")


def _mkv_ends(data: bytes) -> bool:
    """Whether the Segment, whose size is written last, fills the file."""
    head = data.find(SEGMENT) + len(SEGMENT)
    size = int.from_bytes(data[head : head + 8], "big") & (1 << 56) - 1
    return head + 8 + size == len(data)


def frames_of(path: Path, *, cut: bool = False) -> list[str]:
    """Return a hash of every frame of a video.

    Args:
        path: The file.
        cut: Accept a truncated file, and decode what can be decoded, as players do.
    """
    import av
    import av.error

    found: list[str] = []
    try:
        with av.open(str(path)) as container:
            found.extend(
                f"{frame.pts} {hashlib.sha256(frame.to_ndarray().tobytes()).hexdigest()}"
                for frame in container.decode(container.streams.video[0])
            )
    except (av.error.FFmpegError, IndexError) as error:
        if not cut:
            raise ValueError(f"cannot be decoded: {error}") from error
    return found


CHECKS: dict[str, Callable[[Path], None]] = {
    ".safetensors": _checkpoint,
    ".pt": _state,
    ".onnx": _graph,
    ".json": _json,
    ".jsonl": _json_lines,
    ".yaml": _yaml,
    ".csv": _table,
    ".html": _page,
    ".png": _picture,
    ".jpg": _picture,
    ".mp4": _movie,
    ".mkv": _movie,
}
