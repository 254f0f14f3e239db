"""Measure the overhead of HTTP: one frame of uint8 over loopback against the same model called directly.

A folded network with random weights is exported and served by a process of its own. Every round calls the model in this
process, and the server with `tritonclient` and binary tensors, in random order; both have the same number of threads
and only one of them works at a time. `/segment` with a JPEG, which has to be decoded and whose mask becomes a PNG, is
timed too. With `--clients`, as many clients in another process send frames as tensors at the same time, and their rate
is compared with that of one caller of the model; processor times tell what the server and its clients add to the model.

Examples:
    python tools/bench/serve_http.py
    python tools/bench/serve_http.py --clients 8 --width 8 --rounds 5
    python tools/bench/serve_http.py --size 720x1280 --rounds 40 --json http.json
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import httpx
import numpy as np
import torch
from ratios import Ratio, options_of, record, write_numbers
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build, fold
from rcil.scenes import make_scene
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_size
from rcil_export.timing.interleaved import bootstrap_ratio, interleaved, percentiles
from rcil_serve.runtime.backends import open_backend

MIN_MS = 100
"""Minimum duration of the model in milliseconds; with a faster one, the share of HTTP says little."""
SERVER = """
import sys
from pathlib import Path
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.run import serve
serve(HttpOptions(Path(sys.argv[1]), port=0, threads=int(sys.argv[2]), max_batch=int(sys.argv[3])))
"""


def export(path: Path, width: int, interface: Interface) -> Metadata:
    """Write a folded ResNet-18 of 21 classes with `width` channels in its first stage and random weights as ONNX."""
    torch.manual_seed(0)
    names = [[f"class {i}" for i in range(21)]]
    model = build(Architecture(backbone="resnet18", width=width, head_width=4 * width), names)
    with torch.no_grad():
        model.train()(torch.randn(2, 3, 128, 128))
    metadata = Metadata(architecture=model.arch, classes=class_table(names))
    write_onnx(path, to_onnx(fold(model.eval())[0], metadata, interface))
    return metadata


@contextmanager
def serving(model: Path, threads: int, max_batch: int = 1) -> Iterator[tuple[str, int]]:
    """Serve the model in another process; yields its address and the number of the process."""
    log = model.with_suffix(".log")
    with log.open("w") as out:
        command = [sys.executable, "-c", SERVER, str(model), str(threads), str(max_batch)]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        while (found := re.search(r"listening on http://(\S+)", log.read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait()


CLIENTS = """
import sys, threading
import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
address, count, requests, shape = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [1, *map(int, sys.argv[4:]), 3]
image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
def ask(start):
    client = InferenceServerClient(address, network_timeout=600)
    start.wait()
    for _ in range(requests):
        tensor = InferInput("image", shape, "UINT8")
        tensor.set_data_from_numpy(image, binary_data=True)
        client.infer("rcil", [tensor], outputs=[InferRequestedOutput("mask", binary_data=True)]).as_numpy("mask")
    client.close()
start = threading.Barrier(count + 1)
threads = [threading.Thread(target=ask, args=(start,)) for _ in range(count)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
start.wait()
for thread in threads:
    thread.join()
"""
REQUESTS = 5
"""Requests of each client in a round."""


def seconds_of(process: int) -> float:
    """Processor time of another process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def concurrently(model: Path, arguments: argparse.Namespace) -> None:
    """Print the rate and the processor time of several clients, and of one caller of the model."""
    size, count = parse_size(arguments.size), arguments.clients * REQUESTS
    batch = np.random.default_rng(0).integers(0, 256, (1, *size, 3), dtype=np.uint8)
    backend = open_backend(model, "cpu", arguments.threads)
    seconds: dict[str, list[float]] = {"local": [], "clients": []}
    processor: dict[str, list[float]] = {"local": [], "server": [], "clients": []}
    with serving(model, arguments.threads) as (address, server):
        for _ in range(arguments.rounds + 1):
            used, begun = time.process_time(), time.perf_counter()
            for _ in range(count):
                backend.run(batch)
            seconds["local"].append(time.perf_counter() - begun)
            processor["local"].append(time.process_time() - used)
            command = [sys.executable, "-c", CLIENTS, address, str(arguments.clients), str(REQUESTS), *map(str, size)]
            clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert clients.stdin is not None and clients.stdout is not None
            clients.stdout.readline()
            used, theirs, begun = seconds_of(server), seconds_of(clients.pid), time.perf_counter()
            clients.stdin.write(b"\n")
            clients.stdin.flush()
            while "Z" not in Path(f"/proc/{clients.pid}/stat").read_text().rpartition(")")[2].split()[0]:
                time.sleep(0.005)
            seconds["clients"].append(time.perf_counter() - begun)
            processor["server"].append(seconds_of(server) - used)
            processor["clients"].append(seconds_of(clients.pid) - theirs)
            clients.wait()
    ratio, low, high = bootstrap_ratio(seconds["local"][1:], seconds["clients"][1:])
    print(f"ResNet-18 of width {arguments.width}, {arguments.size}, {arguments.clients} clients:")
    for name, values in seconds.items():
        print(f"  {name:8} {1000 * float(np.median(values[1:])) / count:8.1f} ms per frame")
    for name, values in processor.items():
        print(f"  {name:8} {1000 * float(np.median(values[1:])) / count:8.1f} processor ms per frame")
    print(f"  {ratio:.3f} of the local rate ({low:.3f} to {high:.3f})")


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--width", type=int, default=20, help="width of the ResNet-18 that is served (default 20)")
    parser.add_argument("--size", default="720x1280", help="height x width (default 720x1280)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clients", type=int, metavar="N", help="measure N clients at the same time instead")
    arguments = parser.parse_args()
    size = parse_size(arguments.size)
    image = make_scene(0, 0, size=size).image
    jpeg = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(path, arguments.width, Interface(shape=InputShape.of(*size), runtime="cpu"))
        if arguments.clients:
            concurrently(path, arguments)
            return
        backend = open_backend(path, "cpu", arguments.threads)
        with serving(path, arguments.threads) as (address, _), httpx.Client(base_url=f"http://{address}") as uploads:
            client = InferenceServerClient(address, network_timeout=600)
            wanted = [InferRequestedOutput("mask", binary_data=True)]

            def local() -> np.ndarray:
                return backend.run(image[None]).mask

            def protocol() -> np.ndarray:
                tensor = InferInput("image", [1, *image.shape], "UINT8")
                tensor.set_data_from_numpy(image[None], binary_data=True)
                return client.infer("rcil", [tensor], outputs=wanted).as_numpy("mask")

            def upload() -> bytes:
                return uploads.post("/segment", content=jpeg, timeout=600).raise_for_status().content

            assert np.array_equal(local(), protocol()), "the masks differ"
            times = interleaved({"local": local, "v2, binary": protocol, "/segment, JPEG": upload}, arguments.rounds, 3)
            client.close()
    how = f"{arguments.threads} threads, {arguments.rounds} interleaved rounds"
    print(f"ResNet-18 of width {arguments.width}, {arguments.size}, {how}")
    rows = {}
    for name, values in times.items():
        ratio, low, high = bootstrap_ratio(values, times["local"])
        first, middle, third = (1000 * float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
        p95 = 1000 * percentiles(values)[1]
        rows[name] = {
            "p50_ms": middle,
            "iqr_ms": third - first,
            "p95_ms": p95,
            "ratio": ratio,
            "low": low,
            "high": high,
        }
        print(
            f"  {name:16} {middle:8.1f} ms ± {third - first:6.1f} (95 %: {p95:8.1f})   "
            f"{ratio:6.3f} of local ({low:.3f} to {high:.3f})"
        )
    ratios = {name: Ratio(row["ratio"], row["low"], row["high"]) for name, row in rows.items() if name != "local"}
    record("serve http", {f"local / {name}": ratio.inverse for name, ratio in ratios.items()})
    if rows["local"]["p50_ms"] < MIN_MS:
        print(f"  the model takes less than {MIN_MS} ms: choose a larger --size or --width for the share of HTTP")
    document = {"arguments": {**vars(arguments), "json": None}, "times": rows}
    write_numbers(arguments.json, document)


if __name__ == "__main__":
    main()
