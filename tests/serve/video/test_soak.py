"""Long runs: memory stays flat, no thread is left."""

import subprocess
import sys

import pytest
from clips import make_clip
from served import write_model

from rcil_export.graph.shapes import InputShape

PROGRAM = """
import sys, threading
from pathlib import Path
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.video.run import VideoRequest, run_video

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024

folder = Path(sys.argv[1])
targets = Targets(folder / "out.mp4", folder / "masks.mkv", folder / "f.jsonl", folder / "t.png")
request = VideoRequest(source=str(folder / "in.mp4"), model=folder / "m.onnx", targets=targets,
                       receipt=folder / "r.json", device="cpu", threads=1)
seen = []

def show(progress):
    if progress.counts.written > WARM:
        seen.append(resident())

result = run_video(request, show=show)
print(result["frames"]["written"], threading.active_count(), max(seen) - seen[0])
"""


def soak(folder, frames, warm, size=(48, 64)):
    write_model(folder / "m.onnx", InputShape.of(32, 32))
    make_clip(folder / "in.mp4", frames, size, times=[512 * index for index in range(frames)], sound="aac")
    program = PROGRAM.replace("WARM", str(warm))
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    written, threads, growth = done.stdout.split()
    return int(written), int(threads), float(growth)


def test_memory_is_flat_over_a_short_run(tmp_path):
    """Frames of 184 kB: what kept them, or a mask of each, would grow by 74 MB, or 25."""
    written, threads, growth = soak(tmp_path, 600, 200, (192, 320))
    assert (written, threads) == (600, 1)
    assert growth < 15


@pytest.mark.slow
def test_memory_is_flat_over_twenty_thousand_frames(tmp_path):
    written, threads, growth = soak(tmp_path, 20_000, 1000)
    assert (written, threads) == (20_000, 1)
    assert growth < 50
