import base64
import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rcil.core.errors import ConfigError
from rcil_serve.watch import webhook as module
from rcil_serve.watch.events import Event
from rcil_serve.watch.webhook import Outbox, Webhook, WebhookOptions

QUICK = (0.05,)


class Receiver:
    """Notes what is posted; answers with the next of `statuses`, and then with 200."""

    def __init__(self, *statuses, port=0):
        self.posts, self.statuses = [], list(statuses)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == "hang up":
                    return
                receiver.posts.append((json.loads(body), dict(self.headers), status))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def accepted(self):
        return [post for post, _, status in self.posts if status == 200]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    with contextlib.closing(Receiver()) as made:
        yield made


def options(tmp_path, port, **more):
    return WebhookOptions(f"http://127.0.0.1:{port}/hook?key=s3cret", tmp_path / "outbox", **more)


def raised(number, picture=None):
    return Event("raised", float(number), f"alarm {number}", {"class": "a", "value": 0.5}, snapshot=picture)


def wait_for(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_event_arrives_with_its_picture(tmp_path, receiver, threads):
    with contextlib.closing(Webhook(options(tmp_path, receiver.port, token="t0ken"))) as webhook:
        webhook.add(raised(1, b"a jpeg"))
        wait_for(lambda: webhook.delivered == 1)
        assert webhook.waiting == 0
    (document, headers, _), *rest = receiver.posts
    assert not rest
    assert document | {"event": "raised", "time": 1.0, "class": "a", "value": 0.5, "text": "alarm 1"} == document
    assert base64.b64decode(document["snapshot"]) == b"a jpeg"
    assert headers["Content-Type"] == "application/json" and headers["Authorization"] == "Bearer t0ken"
    assert headers["Idempotency-Key"] == document["id"]
    assert list((tmp_path / "outbox").iterdir()) == []
    assert threading.active_count() <= threads


def test_events_wait_on_disk_until_the_receiver_is_back(tmp_path, caplog):
    first = Receiver()
    first.close()
    left = []
    webhook = Webhook(options(tmp_path, first.port), QUICK, left.append)
    for number in range(5):
        webhook.add(raised(number))
    time.sleep(0.2)
    assert webhook.waiting == 5 and webhook.delivered == 0
    webhook.close()
    assert left == [f"5 events wait in {tmp_path / 'outbox'}; the next run delivers them"]
    again = Webhook(options(tmp_path, first.port), QUICK)
    again.add(raised(5))
    with contextlib.closing(Receiver(port=first.port)) as receiver:
        wait_for(lambda: again.delivered == 6)
        again.close()
        assert [document["time"] for document in receiver.accepted] == [0, 1, 2, 3, 4, 5], "in order"
    assert "cannot be reached" in caplog.text and "accepts events again" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("status", [500, 503, 429, "hang up"])
def test_an_error_of_the_receiver_is_no_delivery(tmp_path, status):
    with (
        contextlib.closing(Receiver(status, status)) as receiver,
        contextlib.closing(Webhook(options(tmp_path, receiver.port), QUICK)) as webhook,
    ):
        webhook.add(raised(1))
        wait_for(lambda: webhook.delivered == 1)
        assert len(receiver.accepted) == 1
        ids = {post["id"] for post, _, _ in receiver.posts}
        assert len(ids) == 1, "the receiver can tell a repetition"


@pytest.mark.parametrize("status", [400, 302])
def test_an_event_that_is_refused_does_not_hold_up_the_others(tmp_path, status):
    with contextlib.closing(Receiver(status)) as receiver:
        webhook = Webhook(options(tmp_path, receiver.port), (0.4,))
        webhook.add(raised(1))
        wait_for(lambda: receiver.posts)
        webhook.add(raised(2))
        wait_for(lambda: webhook.delivered == 2)
        webhook.close()
        assert sorted(document["time"] for document in receiver.accepted) == [1, 2]


def test_a_full_outbox_keeps_events_without_their_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PICTURE_BYTES", 1500)
    outbox = Outbox(tmp_path)
    for number in range(4):
        outbox.put(raised(number, bytes(900)))
    kept = [json.loads(path.read_text()) for path in outbox.waiting()]
    assert [document["time"] for document in kept] == [0, 1, 2, 3]
    assert [document["snapshot"] is not None for document in kept] == [True, True, False, False]
    assert Outbox(tmp_path).count == 4


def test_the_end_does_not_wait_for_a_receiver_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    monkeypatch.setattr(module, "FLUSH_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhook = Webhook(options(tmp_path, silent.getsockname()[1]), QUICK)
        webhook.add(raised(1))
        begun = time.monotonic()
        webhook.close()
        assert time.monotonic() - begun < 5 and webhook.waiting == 1


@pytest.mark.parametrize(
    "address", ["ftp://here/", "here:80/a", "http://", "http://a b/", "http://h:99999/", "http://ä/"]
)
def test_addresses_that_are_none(tmp_path, address):
    with pytest.raises(ConfigError, match="--webhook"):
        WebhookOptions(address, tmp_path)


def test_the_receiver_is_named_without_secrets(tmp_path):
    made = WebhookOptions("https://user:pw@hooks.local:8443/T0/s3cret?x=1", tmp_path, "t0ken")
    assert made.receiver == "https://hooks.local:8443"
    assert made.target == "https://hooks.local:8443/T0/s3cret?x=1" and made.authorization == "Bearer t0ken"
    basic = WebhookOptions("http://user:p%40w@hooks.local/", tmp_path).authorization
    assert basic == f"Basic {base64.b64encode(b'user:p@w').decode()}"
    assert not any(secret in repr(made) for secret in ("pw", "s3cret", "t0ken"))
