"""Clips on disk, read back once they are written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from rcil.core.errors import RcilError
from rcil.core.masks import write_mask
from rcil.scenes.types import Scene


def write_clip(video: Path, masks: Path, scenes: Iterable[Scene], fps: float, size: tuple[int, int]) -> int:
    """Write a clip as MPEG-4 with one mask per frame, and return the number of frames.

    The clip is read back, since a writer without its codec drops frames in silence.
    """
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter.fourcc(*"mp4v"), fps, (size[1], size[0]))
    if not writer.isOpened():
        raise _no_codec(video)
    number = 0
    try:
        for scene in scenes:
            writer.write(np.ascontiguousarray(scene.image[..., ::-1]))
            write_mask(masks / f"{number:06d}.png", scene.mask)
            number += 1
    finally:
        writer.release()
    if _readable_frames(video, size) != number:
        raise _no_codec(video)
    with video.open("rb") as file:
        os.fsync(file.fileno())
    return number


def _readable_frames(video: Path, size: tuple[int, int]) -> int:
    """Frames of the right size that can be decoded from the start."""
    reader = cv2.VideoCapture(str(video))
    number = 0
    try:
        while True:
            found, frame = reader.read()
            if not found or frame.shape[:2] != size:
                return number
            number += 1
    finally:
        reader.release()


def _no_codec(video: Path) -> RcilError:
    return RcilError(
        f"cannot encode {video.name} as MPEG-4",
        "Install opencv-python-headless from PyPI, which brings the codec, or leave the clip out with 0 frames.",
    )
