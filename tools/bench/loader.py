"""Measure crops per second and busy cores of the loader, by number of worker processes.

A generated site, the paper's augmentation. Rounds of all variants alternate; medians with the interquartile range. A
training step that needs fewer images per second than this never waits.

Examples:
    python tools/bench/loader.py
    python tools/bench/loader.py --size 1024x2048 --crop 768 --workers 0,2,4
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from pcd import summary
from ratios import options_of, paired, record, write_numbers
from workers import processor_seconds

from rcil.data.site import read_site
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.scenes import make_site
from rcil.training.loader import Crops, CropSettings, batches


def one_epoch(crops: Crops, epoch: int) -> tuple[float, float]:
    """Return images per second and the average number of busy cores."""
    start, cpu = time.perf_counter(), processor_seconds()
    images = sum(len(labels) for pieces in batches(crops, epoch) for _, labels in pieces)
    passed = time.perf_counter() - start
    return images / passed, (processor_seconds() - cpu) / passed


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--size", default="480x640", help="height x width of the images (default 480x640)")
    parser.add_argument("--crop", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--workers", default="0,1,2", help="comma-separated numbers of processes (default 0,1,2)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    height, width = (int(side) for side in arguments.size.split("x"))
    numbers = [int(word) for word in arguments.workers.split(",")]
    found: dict[int, list[tuple[float, float]]] = {number: [] for number in numbers}
    with tempfile.TemporaryDirectory() as folder:
        make_site(Path(folder) / "site", images=arguments.images, size=(height, width), frames=0)
        site = read_site(Path(folder) / "site")
        metadata = Metadata(architecture=Architecture(), classes=class_table([list(site.names)]))
        for round_ in range(arguments.rounds):
            for number in numbers:
                settings = CropSettings(arguments.batch, arguments.crop, (0.5, 2.0), number)
                crops = Crops(site.splits["train"], np.arange(256, dtype=np.uint8), metadata, settings, (0, 0))
                found[number].append(one_epoch(crops, round_))
    print(f"images {arguments.size}, crop {arguments.crop}, batch {arguments.batch}, {arguments.rounds} rounds")
    print("workers  images/s         cores busy")
    for number, runs in found.items():
        seconds = summary([1 / rate for rate, _ in runs])
        busy = statistics.median(cores for _, cores in runs)
        middle, spread = seconds["median_ms"], seconds["iqr_ms"]
        print(f"{number:7d}  {1e3 / middle:6.1f} ± {spread / middle:4.0%}   {busy:.2f}")
    rates = {number: [rate for rate, _ in runs] for number, runs in found.items()}
    record(
        "loader",
        {f"{number} workers / {numbers[0]}": paired(rates[number], rates[numbers[0]]) for number in numbers[1:]},
    )
    write_numbers(arguments.json, {str(number): runs for number, runs in found.items()})


if __name__ == "__main__":
    main()
