"""Compare the video command with bare inference and with a plain OpenCV loop.

Examples:
    python tools/bench/video.py
    python tools/bench/video.py --size 288x512 --frames 200 --rounds 2 --json video.json

Three variants process the same 720p clip, interleaved in one process:
  bare   ONNX Runtime on one decoded frame, repeatedly
  ours   `rcil-serve video`: decode, infer, paint, encode, records
  plain  read, infer, one numpy blend per class, write, with OpenCV
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import torch
from ratios import paired, record

from rcil.model.architecture import Architecture
from rcil.model.metadata import LITE_MEAN, LITE_STD, Metadata, class_table
from rcil.nn import build, fold
from rcil.scenes import make_scene
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_size
from rcil_export.timing.interleaved import interleaved
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.painter import Painter, shares
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.video.run import VideoRequest, run_video

SIZE = (720, 1280)
NAMES = ["background", *(f"class {index}" for index in range(1, 21))]


def write_model(path: Path, size: tuple[int, int]) -> None:
    """EfficientNet-lite0 with 21 classes and random weights; its time does not depend on its weights."""
    torch.manual_seed(0)
    model = fold(build(Architecture(backbone="efficientnet_lite0"), [NAMES]).eval())[0]
    metadata = Metadata(architecture=model.arch, classes=class_table([NAMES]), mean=LITE_MEAN, std=LITE_STD)
    write_onnx(path, to_onnx(model, metadata, Interface(shape=InputShape.of(*size), runtime="cpu")))


def write_clip(path: Path, frames: int) -> None:
    """A generated scene that the camera pans over, with sensor noise."""
    wide = cv2.resize(make_scene(0, 0, size=(360, 960)).image, (2560, 720), interpolation=cv2.INTER_CUBIC)
    noise = np.random.default_rng(0).integers(0, 9, (8, *SIZE, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(30))
        stream.height, stream.width = SIZE
        stream.pix_fmt = "yuv420p"
        for index in range(frames):
            left = 8 * index % (wide.shape[1] - SIZE[1])
            pixels = cv2.add(np.ascontiguousarray(wide[:, left : left + SIZE[1]]), noise[index % len(noise)])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))


def plain_loop(clip: Path, out: Path, predictor: Predictor, frames: int) -> None:
    """A typical script: one frame at a time, with a boolean mask and a float blend per class."""
    reader = cv2.VideoCapture(str(clip))
    writer = cv2.VideoWriter(str(out), cv2.VideoWriter.fourcc(*"mp4v"), 30.0, SIZE[::-1])
    for _ in range(frames):
        read, frame = reader.read()
        assert read
        mask = predictor.segment(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)).mask
        drawn = frame.copy()
        for row, info in enumerate(predictor.classes):
            chosen = mask == row
            if row and chosen.any():
                drawn[chosen] = (0.5 * drawn[chosen] + 0.5 * np.array(info.colour[::-1])).astype(np.uint8)
        writer.write(drawn)
    writer.release()


def spread(values: list[float], scale: float = 1.0) -> str:
    low, high = min(values) * scale, max(values) * scale
    return f"{statistics.median(values) * scale:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", default="512x896", help="height x width of the model's input (default 512x896)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cv2.setNumThreads(options.threads)
    size = parse_size(options.size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, clip = folder / "model.onnx", folder / "clip.mp4"
        write_model(model, size)
        write_clip(clip, options.frames)
        backend = open_backend(model, "cpu", options.threads)
        predictor = Predictor(backend)
        ready = np.random.default_rng(0).integers(0, 256, (1, *size, 3), dtype=np.uint8)
        request = VideoRequest(
            source=str(clip),
            model=model,
            targets=Targets(folder / "ours.mp4", records=folder / "frames.jsonl"),
            receipt=folder / "receipt.json",
            device="cpu",
            threads=options.threads,
        )
        ways: dict[str, Callable[[], object]] = {
            "bare": lambda: [backend.run(ready) for _ in range(options.frames)],
            "ours": lambda: run_video(request),
            "plain": lambda: plain_loop(clip, folder / "plain.mp4", predictor, options.frames),
        }
        times = interleaved(ways, options.rounds, 1)
        stages = json.loads((folder / "receipt.json").read_text())["stages"]
        overlay = overlay_times(predictor, ready)
    report = {
        "machine": platform.processor() or platform.machine(),
        "options": {key: value for key, value in vars(options).items() if key != "json"},
        "ms_a_frame": {name: [1000 * value / options.frames for value in found] for name, found in times.items()},
        "ours_over_bare": [b / o for b, o in zip(times["bare"], times["ours"], strict=True)],
        "ours_over_plain": [p / o for p, o in zip(times["plain"], times["ours"], strict=True)],
        "overlay_ms": overlay,
        "stages": stages,
    }
    for key, found in report["ms_a_frame"].items():
        print(f"{key:6} {spread(found)} ms per frame")
    print(f"end to end over bare inference: {spread(report['ours_over_bare'])} of its fps")
    print(f"faster than the plain loop:     {spread(report['ours_over_plain'])} x")
    print(f"overlay of a 720p frame:        {spread(overlay)} ms")
    ratios = {f"{name} / ours": paired(times[name], times["ours"]) for name in ("bare", "plain")}
    record(f"video, {options.size}", ratios)
    for key, stage in stages.items():
        print(f"  {key:7} p50 {stage['p50_ms']:7.2f}  p95 {stage['p95_ms']:7.2f} ms")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def overlay_times(predictor: Predictor, seed_image: np.ndarray) -> list[float]:
    """Milliseconds to paint and count one 720p frame, with a mask of large areas, as networks predict."""
    painter = Painter(predictor.classes)
    image = cv2.resize(seed_image[0], SIZE[::-1])
    small = np.random.default_rng(1).integers(0, 21, (9, 16), dtype=np.uint8)
    mask = cv2.resize(small, SIZE[::-1], interpolation=cv2.INTER_NEAREST)

    def once() -> None:
        painter.paint(image, mask)
        shares(mask, 21)

    return [1000 * value for value in interleaved({"overlay": once}, 50, 1)["overlay"]]


if __name__ == "__main__":
    main()
