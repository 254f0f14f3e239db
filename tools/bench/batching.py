"""Measure dynamic batching: images per second of several clients at `rcil-serve http` and at Triton.

A folded network with random weights is exported twice, for single images and for batches of up to `--batch`, and served
by processes of their own, each with the same number of threads; only one of them works at a time, in random order.
Every client sends one image after another with binary tensors, as `--model triton://` does. Triton takes part if
`--triton` names a folder that `tools/triton/setup_server.py` filled; its ONNX backend is the one of `tools/triton`.

Examples:
    python tools/bench/batching.py
    python tools/bench/batching.py --clients 8 --size 360x640 --triton /var/tmp/triton --json batching.json
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ratios import options_of, write_numbers
from serve_http import export, serving

from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import parse_shape, parse_size
from rcil_export.triton.config import Queue
from rcil_export.triton.repository import publish
from rcil_export.triton.serving import Serving
from rcil_serve.runtime.backends import open_backend

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
SECONDS = 5.0
"""Length of one measurement."""


@contextlib.contextmanager
def triton(folder: Path, repository: Path, log: Path) -> Iterator[str]:
    """A Triton server with the model `bench`."""
    from triton_server import running

    with running(folder, repository, log) as server:
        server.load("bench")
        yield f"{server.url}/bench"


def rate(address: str, image: np.ndarray, clients: int) -> float:
    """Images per second that several clients get together."""
    counts, stop = [0] * clients, threading.Event()

    def ask(number: int) -> None:
        backend = open_backend(Path(f"triton://{address}"))
        while not stop.is_set():
            backend.run(image[None])
            counts[number] += 1
        backend.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    before, begun = sum(counts), time.perf_counter()
    time.sleep(SECONDS)
    found = (sum(counts) - before) / (time.perf_counter() - begun)
    stop.set()
    for thread in threads:
        thread.join()
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--width", type=int, default=8, help="width of the ResNet-18 that is served (default 8)")
    parser.add_argument("--size", default="128x128", help="height x width (default 128x128)")
    parser.add_argument("--batch", type=int, default=8, help="largest batch (default 8)")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="threads of the model (default 1)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--triton", type=Path, metavar="FOLDER", help="a real Triton server")
    arguments = parser.parse_args()
    height, width = parse_size(arguments.size)
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        single, path = folder / "single.onnx", folder / "batched.onnx"
        export(single, arguments.width, Interface(shape=parse_shape(arguments.size, None, "1")))
        interface = Interface(shape=parse_shape(arguments.size, None, f"1:1:{arguments.batch}"))
        metadata = export(path, arguments.width, interface)
        addresses = {
            "one by one": f"{stack.enter_context(serving(single, arguments.threads))[0]}/rcil",
            "batched": f"{stack.enter_context(serving(path, arguments.threads, arguments.batch))[0]}/rcil",
        }
        if arguments.triton:
            options = {"queue": Queue(timeout_ms=60_000), "serving": Serving(threads=arguments.threads)}
            publish(path, metadata, interface, folder / "models", name="bench", **options)
            address = stack.enter_context(triton(arguments.triton, folder / "models", folder / "triton.log"))
            addresses["Triton"] = address
        rates: dict[str, list[float]] = {name: [] for name in addresses}
        for _ in range(arguments.rounds):
            for name in random.sample(list(addresses), len(addresses)):
                rates[name].append(rate(addresses[name], image, arguments.clients))
    print(f"ResNet-18 of width {arguments.width}, {arguments.size}, {arguments.clients} clients, images per second:")
    for name, values in rates.items():
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        print(f"  {name:12} {middle:7.1f} ({low:.1f} to {high:.1f})")
    document = {"arguments": {**vars(arguments), "json": None, "triton": bool(arguments.triton)}, "rates": rates}
    write_numbers(arguments.json, document)


if __name__ == "__main__":
    main()
