"""Send images to a Triton model until standard input ends, then print the results as JSON.

    python load.py HOST:PORT MODEL IMAGES.npy [--threads 4] [--masks MASKS.npz]

IMAGES.npy is uint8 [K, H, W, 3]; each request carries one image as a binary tensor and names no version, so the server
answers with its newest. `{"started": true}` is printed once every thread had its first answer. MASKS.npz takes an array
[K, H, W] for each version that answered for all images.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput


@dataclass
class Seen:
    """Responses to one thread."""

    failures: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """Number of responses by version."""
    masks: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    """Mask of each image, by version."""
    unequal: int = 0
    """Number of masks that differ from an earlier one of the same image and version."""
    slowest: float = 0.0
    """Duration of the slowest request in seconds."""
    order: list[str] = field(default_factory=list)
    """Versions in the order of responses, one entry per change."""


def send(url: str, model: str, images: np.ndarray, seen: Seen, started: threading.Event, stop: threading.Event) -> None:
    client = InferenceServerClient(url=url)
    wanted = [InferRequestedOutput("mask", binary_data=True)]
    index = 0
    while not stop.is_set():
        image = images[index % len(images)][None]
        tensor = InferInput("image", list(image.shape), "UINT8")
        tensor.set_data_from_numpy(image, binary_data=True)
        begin = time.monotonic()
        try:
            result = client.infer(model, [tensor], outputs=wanted)
            note(seen, result.get_response()["model_version"], index % len(images), result.as_numpy("mask")[0])
        except Exception as error:
            seen.failures.append(f"{type(error).__name__}: {error}")
        seen.slowest = max(seen.slowest, time.monotonic() - begin)
        started.set()
        index += 1
    client.close()


def note(seen: Seen, version: str, image: int, mask: np.ndarray) -> None:
    seen.answers[version] += 1
    if not seen.order or seen.order[-1] != version:
        seen.order.append(version)
    before = seen.masks.setdefault(version, {}).setdefault(image, mask)
    seen.unequal += not np.array_equal(before, mask)


def summary(everything: list[Seen]) -> dict[str, object]:
    answers: Counter[str] = sum((seen.answers for seen in everything), Counter())
    failures = [text for seen in everything for text in seen.failures]
    classes = {
        version: sorted(
            {int(c) for seen in everything for mask in seen.masks.get(version, {}).values() for c in np.unique(mask)}
        )
        for version in answers
    }
    return {
        "requests": sum(answers.values()) + len(failures),
        "failures": failures,
        "answers": dict(answers),
        "classes": classes,
        "unequal": sum(seen.unequal for seen in everything),
        "slowest": [seen.slowest for seen in everything],
        "orders": [seen.order for seen in everything],
    }


def complete_masks(everything: list[Seen], images: int) -> dict[str, np.ndarray]:
    """The masks [K, H, W] of each version that answered for every image."""
    merged: dict[str, dict[int, np.ndarray]] = {}
    for seen in everything:
        for version, masks in seen.masks.items():
            merged.setdefault(version, {}).update(masks)
    return {v: np.stack([m[i] for i in range(images)]) for v, m in merged.items() if len(m) == images}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("images")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--masks")
    arguments = parser.parse_args()
    images, stop = np.load(arguments.images), threading.Event()
    everything = [Seen() for _ in range(arguments.threads)]
    started = [threading.Event() for _ in everything]
    threads = [
        threading.Thread(target=send, args=(arguments.url, arguments.model, images, seen, event, stop))
        for seen, event in zip(everything, started, strict=True)
    ]
    for thread in threads:
        thread.start()
    for event in started:
        event.wait()
    print(json.dumps({"started": True}), flush=True)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    if arguments.masks:
        np.savez(arguments.masks, **complete_masks(everything, len(images)))
    print(json.dumps(summary(everything)))


if __name__ == "__main__":
    main()
