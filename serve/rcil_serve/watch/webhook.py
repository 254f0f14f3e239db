"""Posts events to a web address. They wait on disk until the receiver has accepted them."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from rcil import __version__
from rcil.core.errors import ConfigError
from rcil.core.files import write_file
from rcil.core.log import Notify, log
from rcil_serve.watch.events import Event

ANSWER_S = 10.0
"""Time limit of one attempt."""
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between attempts while the receiver is away; the last one is repeated."""
FLUSH_S = 5.0
"""Time at the end of a run to deliver what still waits."""
MAX_PICTURE_BYTES = 2**30
"""Size of the outbox beyond which events are kept without their pictures, so that it does not fill the disk."""


@dataclass(frozen=True)
class WebhookOptions:
    """Where events are posted."""

    address: str = field(repr=False)
    """May contain a secret, so it is never logged or recorded."""
    outbox: Path
    """Folder for events that wait."""
    token: str | None = field(default=None, repr=False)
    """Sent as `Authorization: Bearer TOKEN`."""

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.address)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or not self.address.isascii() or any(c.isspace() for c in self.address):
            raise ConfigError("the address of --webhook is not valid", "Use http:// or https:// and a host.")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("the token of the webhook has characters that are not allowed", "Use letters and digits.")

    @property
    def target(self) -> str:
        """The address without a user name and password, which are sent in a header."""
        parts = urllib.parse.urlsplit(self.address)
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))

    @property
    def authorization(self) -> str | None:
        """Value of the `Authorization` header: the token, or else user name and password of the address."""
        parts = urllib.parse.urlsplit(self.address)
        if self.token is not None or parts.username is None:
            return None if self.token is None else f"Bearer {self.token}"
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    @property
    def receiver(self) -> str:
        """The host, for messages and receipts."""
        parts = urllib.parse.urlsplit(self.address)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


class Outbox:
    """Events that were not delivered yet, one file each, in the order in which they happened.

    A file appears completely or not at all and is on the disk before `put` returns, so an event survives a killed
    process and a power cut. Files of earlier runs are delivered too.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        known = self.waiting()
        self.count = len(known)
        self._bytes = sum(path.stat().st_size for path in known)
        self._next = 1 + max((int(path.name.partition("-")[0]) for path in known), default=0)
        self._lock = threading.Lock()

    def waiting(self) -> list[Path]:
        """Files of the events that wait, oldest first."""
        return sorted(path for path in self._folder.glob("*.json") if path.name.partition("-")[0].isdecimal())

    def put(self, event: Event) -> None:
        """Keep an event."""
        with self._lock:
            name = uuid.uuid4().hex
            picture = event.snapshot if self._bytes < MAX_PICTURE_BYTES else None
            document = {
                "id": name,
                **json.loads(event.json),
                "text": event.text,
                "snapshot": None if picture is None else base64.b64encode(picture).decode(),
            }
            content = json.dumps(document)
            write_file(self._folder / f"{self._next:012}-{name}.json", content)
            self._next += 1
            self._bytes += len(content)
            self.count += 1

    def remove(self, path: Path) -> None:
        """Forget an event that was delivered."""
        with self._lock:
            self._bytes -= path.stat().st_size
            path.unlink()
            self.count -= 1


class Webhook:
    """Delivers the events of an outbox, in a thread of its own.

    An event is removed after the receiver has answered with a status of 200 to 299. If the process ends in between, it
    is sent again with the same id: every event is delivered at least once. If the receiver cannot be reached, all wait;
    if it refuses one event, that one is tried again later, and the others go on.

    Args:
        options: Receiver and outbox.
        pauses: Seconds between attempts.
        notify: Called at the end with a line about events that still wait.
    """

    def __init__(
        self, options: WebhookOptions, pauses: tuple[float, ...] = PAUSES, notify: Notify = lambda text: None
    ) -> None:
        self._options, self._pauses, self._notify = options, pauses, notify
        self._outbox = Outbox(options.outbox)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._deadline = float("inf")
        self.delivered = 0
        """Events that the receiver accepted during this run."""
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="rcil-webhook", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of events that wait."""
        return self._outbox.count

    def add(self, event: Event) -> None:
        """Keep an event on disk and deliver it soon."""
        self._outbox.put(event)
        self._wake.set()

    def close(self) -> None:
        """Try once more to deliver what waits, then stop. What is left stays on disk for the next run."""
        self._deadline = time.monotonic() + FLUSH_S
        self._closing.set()
        self._wake.set()
        self._thread.join(FLUSH_S + ANSWER_S)
        if self.waiting:
            self._notify(f"{self.waiting} events wait in {self._options.outbox}; the next run delivers them")

    def _run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            closing = self._closing.is_set()
            delivered = self._deliver()
            if closing:
                return
            failures = 0 if delivered else failures + 1
            if failures:
                self._closing.wait(self._pauses[min(failures, len(self._pauses)) - 1])
            else:
                self._wake.wait()

    def _deliver(self) -> bool:
        """Post everything that waits; return False if something is left."""
        complete = True
        for path in self._outbox.waiting():
            if time.monotonic() > self._deadline:
                return False
            answer = self._post(path)
            if answer is None:
                self._outbox.remove(path)
                self.delivered += 1
                self._note("")
            else:
                complete = False
                self._note(answer.message)
                if answer.away:
                    break
        return complete

    def _post(self, path: Path) -> _Refused | None:
        """Post one event; return the reason if it was not accepted."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"rcil/{__version__}",
            "Idempotency-Key": path.stem.partition("-")[2],
        }
        if (authorization := self._options.authorization) is not None:
            headers["Authorization"] = authorization
        request = urllib.request.Request(self._options.target, path.read_bytes(), headers)
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            error.close()
            status = error.code
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            return _Refused(f"cannot be reached: {reason}", away=True)
        if 200 <= status < 300:
            return None
        return _Refused(f"answered {status}", away=status >= 500 or status in (408, 429))

    def _note(self, problem: str) -> None:
        """Log when the receiver goes away and when it comes back, once each."""
        if problem and problem != self._problem:
            log.warning("webhook: %s %s; events wait in %s", self._options.receiver, problem, self._options.outbox)
        elif self._problem and not problem:
            log.warning("webhook: %s accepts events again", self._options.receiver)
        self._problem = problem


@dataclass(frozen=True)
class _Refused:
    """Why an event was not accepted."""

    message: str
    away: bool
    """Whether the receiver is away, so that other events need not be tried."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirection as a refusal, because following it would turn the POST into a GET."""

    def redirect_request(self, *_: object) -> None:
        return None
