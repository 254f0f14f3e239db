"""A clip of one scene with a static camera: people walk, vehicles drive and balls bounce."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from rcil.core.errors import ConfigError, RcilError
from rcil.core.masks import write_mask
from rcil.defaults import FRAMES, IMAGE_SIZE
from rcil.scenes.domains import DOMAINS
from rcil.scenes.ground import paint_backdrop
from rcil.scenes.layout import Thing, plan
from rcil.scenes.render import exposure, lamp_light, record, render
from rcil.scenes.scene import Scene, Stream, check_domains, check_size, stream

FPS = 12.0
CAST = {
    "road": 1, "building": 2, "vegetation": 3, "person": 2, "vehicle": 2,
    "crate": 1, "barrier": 1, "cone": 2, "sign": 1, "ball": 1,
}  # fmt: skip
"""Objects per class. A clip shows all classes."""


@dataclass(frozen=True)
class Motion:
    """Sinusoidal motion around the planned position, so that objects stay in view in a clip of any length."""

    sideways: float = 0.0
    """Amplitude sideways in metres."""
    ahead: float = 0.0
    """Amplitude in depth, as a share of the depth."""
    period: float = 8.0
    """Period in seconds."""
    bounce: float = 0.0
    """Height of a bounce in metres."""
    stride: float = 0.0
    """Stride phase per second, in radians."""


MOTIONS = {
    "person": Motion(sideways=1.6, ahead=0.08, period=9.0, stride=5.0),
    "vehicle_side": Motion(sideways=3.0, period=10.0),
    "vehicle_end": Motion(ahead=0.22, period=10.0),
    "ball": Motion(sideways=1.2, ahead=0.05, period=6.0, bounce=0.7),
}
"""Motion by kind; other kinds stand still."""


def make_clip(
    seed: int, frames: int = FRAMES, size: tuple[int, int] = IMAGE_SIZE, *, domain: str = "sunny"
) -> Iterator[Scene]:
    """Yield the frames of a clip. A frame does not depend on the number of frames.

    Args:
        seed: Determines the scene, its objects and their paths.
        frames: Number of frames.
        size: Height and width.
        domain: A name of `DOMAINS`, for the whole clip.
    """
    check_size(size)
    check_domains([domain])
    if frames < 1:
        raise ConfigError(f"a clip of {frames} frames is empty", "Ask for at least one frame.")
    return _frames(seed, frames, size, domain)


def _frames(seed: int, frames: int, size: tuple[int, int], domain: str) -> Iterator[Scene]:
    layout = plan(stream(seed, 0, Stream.CLIP_LAYOUT), size, CAST, clutter=3)
    setting = DOMAINS[domain]
    place_rng = stream(seed, 1, Stream.CLIP_LAYOUT)
    gain, lamps = exposure(place_rng, setting), lamp_light(place_rng, setting, size)
    image, mask = paint_backdrop(layout, setting)
    for frame in range(frames):
        now = replace(layout, things=tuple(_moved(thing, frame / FPS) for thing in layout.things))
        light, ids = render(now, setting, (image.copy(), mask.copy()))
        yield Scene(record(stream(seed, frame, Stream.CLIP_CAMERA), setting, light, lamps, gain), ids, domain)


def _moved(thing: Thing, seconds: float) -> Thing:
    """The object some seconds later; its random phase determines the start of its path."""
    motion = MOTIONS.get(thing.kind)
    if motion is None:
        return thing
    turn = thing.phase + 2 * math.pi * seconds / motion.period
    return replace(
        thing,
        x=thing.x + motion.sideways * math.sin(turn),
        z=thing.z * (1 + motion.ahead * math.cos(turn)),
        phase=thing.phase + motion.stride * seconds,
        lift=motion.bounce * abs(math.sin(thing.phase + math.pi * seconds)),
    )


def write_clip(video: Path, masks: Path, scenes: Iterable[Scene], fps: float, size: tuple[int, int]) -> int:
    """Write a clip as MPEG-4 with one mask per frame; returns the number of frames.

    The clip is read back, since OpenCV silently drops frames if the codec is missing.
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
        "Install opencv-python-headless from PyPI, which includes the codec, or use 0 frames for no clip.",
    )
