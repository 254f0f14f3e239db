"""Compare the video command with bare inference, with a plain OpenCV loop, and with transcoding alone.

Examples:
    python tools/bench/video.py
    python tools/bench/video.py --size 288x512 --frames 200 --rounds 2 --json video.json
    python tools/bench/video.py --cost --frames 100
    python tools/bench/video.py --decoding --frames 100

Variants process the same 720p clip, interleaved in one process:
  bare       ONNX Runtime on one decoded frame, repeatedly
  ours       `rcil-serve video`: decode, infer, paint, encode, records
  plain      read, infer, one numpy blend per class, write, with OpenCV
  free       `rcil-serve video` with a model that costs nothing, without its start
  transcode  PyAV decodes and encodes, with the settings of `rcil-serve video`

Tables show the time, and the processor time of all threads and processes, per frame. `--cost` skips the model: it
compares `free` with `transcode`, adds the processor time of each stage, measured one after the other in one thread, and
shows what the presets of x264 cost. `--decoding` measures decoding in its own process, at several priorities, next to
processes that keep all cores busy.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import torch
from ratios import options_of, paired, record, write_numbers
from video_cost import NAMES, SIZE, Costs, large_areas, preset_costs, show_decoding, spread, stage_costs, transcode

from rcil.hardware.cpu import keep_freed_memory
from rcil.model.architecture import Architecture
from rcil.model.metadata import LITE_MEAN, LITE_STD, Metadata, class_table
from rcil.nn import build, fold
from rcil.scenes import make_scene
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_size
from rcil_export.timing.interleaved import interleaved
from rcil_serve.runtime.backends import Backend, Outputs, open_backend
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Selection
from rcil_serve.stream.outputs.encoders import PRESETS
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.video.run import VideoRequest, run_video


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


class FreeBackend:
    """A model whose masks are ready."""

    def __init__(self, inner: Backend) -> None:
        self.name, self.sha256, self.device = inner.name, inner.sha256, inner.device
        self.metadata, self.interface = inner.metadata, inner.interface
        self._mask = large_areas((self.interface.shape.height.low, self.interface.shape.width.low))[None]

    def run(self, batch: np.ndarray) -> Outputs:
        """See `Backend.run`."""
        return Outputs(self._mask, None)

    def close(self) -> None:
        """See `Backend.close`."""


@dataclass(frozen=True)
class FreeRequest(VideoRequest):
    """A request whose model costs nothing."""

    backend: Backend | None = None

    def open_backend(self, path: Path) -> Backend:
        """See `StreamOptions.open_backend`."""
        assert self.backend is not None
        return self.backend


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", default="512x896", help="height x width of the model's input (default 512x896)")
    parser.add_argument("--cost", action="store_true", help="measure everything but the model")
    parser.add_argument("--decoding", action="store_true", help="measure decoding next to other work")
    options = parser.parse_args()
    keep_freed_memory()
    cv2.setNumThreads(options.threads)
    size = parse_size(options.size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, clip = folder / "model.onnx", folder / "clip.mp4"
        write_clip(clip, options.frames)
        if options.decoding:
            show_decoding(clip, options.rounds)
            return
        write_model(model, size)
        backend = open_backend(model, "cpu", options.threads)
        request = {
            "source": str(clip),
            "model": model,
            "targets": Targets(folder / "ours.mp4", records=folder / "frames.jsonl"),
            "receipt": folder / "receipt.json",
            "device": "cpu",
            "threads": options.threads,
        }
        ways: dict[str, Callable[[], object]] = {
            "free": lambda: run_video(FreeRequest(**request, backend=FreeBackend(backend))),
            "start": lambda: run_video(
                FreeRequest(**request, backend=FreeBackend(backend), selection=Selection(most=1))
            ),
            "transcode": lambda: transcode(clip, folder / "transcoded.mp4"),
        }
        if not options.cost:
            predictor = Predictor(backend)
            ready = np.random.default_rng(0).integers(0, 256, (1, *size, 3), dtype=np.uint8)
            ways |= {
                "bare": lambda: [backend.run(ready) for _ in range(options.frames)],
                "ours": lambda: run_video(VideoRequest(**request)),
                "plain": lambda: plain_loop(clip, folder / "plain.mp4", predictor, options.frames),
            }
        costs = Costs(options.frames)
        times = interleaved({key: costs.of(key, action) for key, action in ways.items()}, options.rounds, 1)
        processor = {key: values[1:] for key, values in costs.found.items()}  # without the warm-up
        for found in (times, processor):
            found["free"] = [whole - start for whole, start in zip(found["free"], found.pop("start"), strict=True)]
        report = {
            "machine": platform.processor() or platform.machine(),
            "options": {key: value for key, value in vars(options).items() if key != "json"},
            "ms_a_frame": {key: [1000 * value / options.frames for value in found] for key, found in times.items()},
            "cpu_ms_a_frame": processor,
            "ratios": {
                label: [b / a for a, b in zip(times[ours], times[theirs], strict=True)]
                for label, ours, theirs in RATIOS
                if ours in times and theirs in times
            },
            "stages": stage_costs(clip, folder, size, options.frames) if options.cost else {},
            "presets": preset_costs(clip, folder, options.frames, PRESETS[:4]) if options.cost else {},
        }
    show(report)
    found = {
        label: paired(times[theirs], times[ours]) for label, ours, theirs in RATIOS if ours in times and theirs in times
    }
    record(f"video, {options.size}", found)
    write_numbers(options.json, report)


RATIOS = (
    ("end to end over bare inference, of its fps", "ours", "bare"),
    ("faster than the plain loop", "ours", "plain"),
    ("with a free model over transcoding, of its fps", "free", "transcode"),
)


def show(report: dict[str, dict]) -> None:
    """Print the numbers."""
    for key, found in report["ms_a_frame"].items():
        print(f"{key:10} {spread(found):28} ms per frame, processor {spread(report['cpu_ms_a_frame'][key])} ms")
    for label, found in report["ratios"].items():
        print(f"{label}: {spread(found)}")
    for key, value in report["stages"].items():
        print(f"  {key:22} {value:6.2f} processor ms per frame")
    if report["stages"]:
        print(f"  {'sum':22} {sum(report['stages'].values()):6.2f}")
    for preset, row in report["presets"].items():
        numbers = f"{row['cpu_ms']:6.2f} processor ms, {row['kilobytes']:6.1f} kB, {row['psnr_db']:.2f} dB per frame"
        print(f"  transcode, {preset:10} {numbers}")


if __name__ == "__main__":
    main()
