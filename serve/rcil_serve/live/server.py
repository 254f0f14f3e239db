"""Serves a live view beside a run, in a thread of its own."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rcil.core.errors import ConfigError
from rcil.core.log import Notify, log
from rcil_serve.http.options import LOOPBACK
from rcil_serve.http.run import listen, make_server
from rcil_serve.live.app import make_view_app
from rcil_serve.live.view import LiveView


@dataclass(frozen=True)
class ViewOptions:
    """Where a live view is served."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 selects any free port."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that viewers must send; the page asks for it."""

    @property
    def open_to_all(self) -> bool:
        """Whether other machines can look without a token."""
        return self.token is None and self.host not in LOOPBACK


def parse_view(text: str, token: str | None = None) -> ViewOptions:
    """Parse `8080`, `0.0.0.0:8080` or `[::]:8080`."""
    found = re.fullmatch(r"(?:(?P<host>[^:\s]+|\[[0-9a-fA-F:.]+\]):)?(?P<port>\d{1,5})", text.strip())
    if found is None or int(found["port"]) > 65535:
        raise ConfigError(f"'{text}' is not an address for --view", "Write a port, or 0.0.0.0:8080 for all interfaces.")
    return ViewOptions((found["host"] or ViewOptions.host).strip("[]"), int(found["port"]), token or None)


@contextlib.contextmanager
def serving(view: LiveView, options: ViewOptions, notify: Notify) -> Iterator[None]:
    """Serve a view during the block, and tell its address."""
    with listen(options.host, options.port) as listener:
        server = make_server(make_view_app(view, options.token), timeout_s=1)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="rcil-view")
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            host, port = listener.getsockname()[:2]
            notify(f"live view: http://{f'[{host}]' if ':' in host else host}:{port}")
            if options.open_to_all:
                log.warning("the live view is reachable from other machines and requires no token; see RCIL_TOKEN")
            yield
        finally:
            view.closed = True
            server.should_exit = True
            thread.join()
