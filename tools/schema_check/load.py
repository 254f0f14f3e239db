"""Load test of a server process: all requests are answered, all masks are correct, and memory is bounded."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.scenes import make_scene
from rcil_serve.runtime.backends import open_backend
from tools.schema_check.sent import HEADER_LENGTH

SIZE = (96, 128)
REFUSALS = (429, 503)
"""Documented responses of a busy server; the client retries."""
PATIENCE_S = 0.05
Answer = tuple[int, NDArray[np.uint8] | None]


@contextmanager
def served(model: Path, log: Path) -> Iterator[tuple[str, int]]:
    """Run the command in a process; yields its host and port, and its process id."""
    command = [sys.executable, "-m", "rcil_serve", "http", "--model", str(model), "--port", "0", "--threads", "1"]
    with log.open("w") as out:
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


def under_load(model: Path, folder: Path, clients: int, requests: int) -> dict[str, Any]:
    """Send `requests` requests with many clients, and summarise the responses."""
    images = [make_scene(seed, 0, size=SIZE).image for seed in range(8)]
    backend = open_backend(model, "cpu", 1)
    expected = [backend.run(image[None]).mask[0] for image in images]
    with served(model, folder / "log") as (address, process), ThreadPoolExecutor(clients) as pool:
        idle = memory_of(process)
        shares = [range(first, requests, clients) for first in range(clients)]
        counted = sum(pool.map(lambda share: _ask(address, share, images, expected), shares), Counter[str]())
        peak = memory_of(process, "VmHWM")
    return {
        "clients": clients,
        "requests": requests,
        "answered": counted["200"],
        "asked_again_after": {str(status): counted[str(status)] for status in REFUSALS if counted[str(status)]},
        "wrong_masks": counted["wrong"],
        "other_answers": {k: v for k, v in counted.items() if k not in ("200", "wrong", *map(str, REFUSALS))},
        "lost": requests - counted["200"],
        "server_mib": {"idle": idle, "peak": peak},
    }


def memory_of(process: int, field: str = "VmRSS") -> float:
    """Resident memory of a process in MiB, or its peak (`VmHWM`)."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None, f"{os.uname().sysname} tells no memory"
    return round(int(found[1]) / 1024, 1)


def _ask(address: str, share: range, images: list[Any], expected: list[Any]) -> Counter[str]:
    """Send one client's requests over one connection, uploads and tensors alternating; refused ones are retried."""
    seen: Counter[str] = Counter()
    connection = http.client.HTTPConnection(address, timeout=120)
    for number in share:
        index = number % len(images)
        send = (_upload, _tensor)[number // len(images) % 2]
        try:
            status, mask = send(connection, images[index])
            while status in REFUSALS:
                seen[str(status)] += 1
                time.sleep(PATIENCE_S)
                status, mask = send(connection, images[index])
        except (OSError, http.client.HTTPException) as error:
            seen[type(error).__name__] += 1
            connection.close()
            continue
        seen[str(status)] += 1
        seen["wrong"] += mask is not None and not np.array_equal(mask, expected[index])
    connection.close()
    return seen


def _upload(connection: http.client.HTTPConnection, image: NDArray[np.uint8]) -> Answer:
    png = cv2.imencode(".png", np.ascontiguousarray(image[..., ::-1]))[1].tobytes()
    connection.request("POST", "/segment", png)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        return answer.status, None
    return 200, np.asarray(cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED), np.uint8)


def _tensor(connection: http.client.HTTPConnection, image: NDArray[np.uint8]) -> Answer:
    sent: dict[str, Any] = {"name": "image", "datatype": "UINT8", "shape": [1, *image.shape]}
    sent["parameters"] = {"binary_data_size": image.nbytes}
    wanted = {"name": "mask", "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [sent], "outputs": [wanted]}).encode()
    connection.request("POST", "/v2/models/rcil/infer", header + image.tobytes(), {HEADER_LENGTH: str(len(header))})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        return answer.status, None
    return 200, np.frombuffer(content[int(answer.headers[HEADER_LENGTH]) :], np.uint8).reshape(image.shape[:2])
