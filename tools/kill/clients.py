"""Clients of a server that may be killed: a request is answered completely, or its connection ends."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Client = Callable[[int, bytes, set[str]], str | None]
"""Takes a port, an image and the SHA-256 of the models that may answer; returns a problem or None."""
PIECES, LATER = 10, 0.02
"""Number of parts of a slow upload, and the seconds between them."""


@dataclass
class Answers:
    """Responses to several threads."""

    served: int = 0
    wrong: list[str] = field(default_factory=list)
    """Problems with responses."""
    broken: list[str] = field(default_factory=list)
    """Connections that ended without a response. A kill may cause this, a reload may not."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def ask(port: int, image: bytes, known: set[str]) -> str | None:
    """Send an image; return what is wrong with the response, or None."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/segment", image)
        return _judged(connection.getresponse(), known)
    finally:
        connection.close()


def upload_slowly(port: int, image: bytes, known: set[str]) -> str | None:
    """Like `ask`, but send the image in parts with pauses between them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.putrequest("POST", "/segment")
        connection.putheader("Content-Length", str(len(image)))
        connection.endheaders()
        size = -(-len(image) // PIECES)
        for begin in range(0, len(image), size):
            connection.send(image[begin : begin + size])
            time.sleep(LATER)
        return _judged(connection.getresponse(), known)
    finally:
        connection.close()


def _judged(answer: http.client.HTTPResponse, known: set[str]) -> str | None:
    body = answer.read()
    if answer.status != 200:
        return f"status {answer.status}: {body[:200].decode(errors='replace')}"
    if answer.headers["X-Rcil-Sha256"] not in known:
        return "the response is from an unknown model"
    return None if body.startswith(b"\x89PNG") else "the response is not a PNG"


@contextmanager
def clients(port: int, image: bytes, known: set[str]) -> Iterator[Answers]:
    """Run two threads that send requests without pause, and one that uploads slowly, during the block."""
    answers, stop = Answers(), threading.Event()

    def go(how: Client) -> None:
        while not stop.is_set():
            try:
                problem = how(port, image, known)
            except (OSError, http.client.HTTPException) as error:
                with answers.lock:
                    answers.broken.append(f"{type(error).__name__}: {error}")
                time.sleep(LATER)
                continue
            with answers.lock:
                answers.served += problem is None
                answers.wrong += [problem] if problem else []

    threads = [threading.Thread(target=go, args=(how,)) for how in (ask, ask, upload_slowly)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()
