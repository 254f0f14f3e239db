import http.client
import logging
import threading
import time

import pytest
from servers import Wrapped, client_of, picture, png, running, write_model

from rcil.core.errors import ConfigError
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.runtime.backends import open_backend

TOKEN = "s3cret-token"
IMAGE = png(picture(0))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "m.onnx", 1)


def test_token(model):
    with client_of(make_app(HttpOptions(model, token=TOKEN, threads=1))) as client:
        for free in ("/", "/page.js", "/v2/health/live", "/v2/health/ready"):
            assert client.get(free).status_code == 200
        for path in ("/classes", "/metrics", "/v2", "/v2/models/rcil", "/sample.jpg", "/nowhere", "/classes/"):
            assert client.get(path).status_code == 401, path
        for wrong in ("", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9"):
            answer = client.post("/segment", content=IMAGE, headers={"Authorization": wrong.encode("latin-1")})
            assert answer.status_code == 401, wrong
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert TOKEN not in answer.text
        assert client.post("/v2/repository/models/rcil/load").status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert client.post("/segment", content=IMAGE, headers=right).status_code == 200
        assert client.get("/classes", headers={"Authorization": f"bearer  {TOKEN}"}).status_code == 200


def test_one_line_a_request_without_secrets(model, caplog):
    with (
        caplog.at_level(logging.INFO, "rcil_serve.http.access"),
        client_of(make_app(HttpOptions(model, token=TOKEN, threads=1))) as client,
    ):
        client.post(f"/segment?token={TOKEN}", content=IMAGE, headers={"Authorization": f"Bearer {TOKEN}"})
        client.get("/a%0Ab")
    lines = [record.getMessage() for record in caplog.records if record.name == "rcil_serve.http.access"]
    assert len(lines) == 2
    assert lines[0].startswith("127.0.0.1 POST /segment 200 ")
    assert lines[1].startswith("127.0.0.1 GET /a%0Ab 401 "), "no line breaks from outside"
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(HttpOptions(model, token=TOKEN))


def test_pages_of_other_sites_are_kept_out(model):
    with client_of(make_app(HttpOptions(model, threads=1))) as client:
        for place in ("cross-site", "same-site"):
            foreign = client.post("/v2/repository/models/rcil/load", headers={"Sec-Fetch-Site": place})
            assert foreign.status_code == 403, place
        own = client.post("/v2/repository/models/rcil/load", headers={"Sec-Fetch-Site": "same-origin"})
        assert own.status_code == 200


def test_body_limit_with_and_without_its_length(model):
    with running(make_app(HttpOptions(model, max_bytes=100_000, threads=1))) as address:
        for body, status in ((bytes(100_000), 400), (bytes(100_001), 413), ([bytes(50_000)] * 3, 413)):
            connection = http.client.HTTPConnection(address, timeout=20)
            connection.request("POST", "/segment", body=iter(body) if isinstance(body, list) else body)
            answer = connection.getresponse()
            assert answer.status == status, len(body)
            assert b'"error"' in answer.read()
            connection.close()


def test_a_stated_length_above_the_limit_is_refused_before_anything_is_sent(model):
    with running(make_app(HttpOptions(model, max_bytes=1000, threads=1))) as address:
        connection = http.client.HTTPConnection(address, timeout=20)
        connection.putrequest("POST", "/segment")
        connection.putheader("Content-Length", str(10**12))
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


def test_a_refused_client_may_finish_sending(model):
    """Otherwise it would see a broken connection instead of the answer."""
    with running(make_app(HttpOptions(model, token=TOKEN, threads=1))) as address:
        connection = http.client.HTTPConnection(address, timeout=20)
        connection.putrequest("POST", "/segment")
        connection.putheader("Content-Length", "3000000")
        connection.putheader("Connection", "close")
        connection.endheaders(bytes(1000))
        time.sleep(0.3)  # long enough for a refusal to come back and the connection to close
        for _ in range(2999):
            connection.send(bytes(1000))
        assert connection.getresponse().status == 401
        connection.close()


def test_a_body_that_does_not_arrive(model):
    with running(make_app(HttpOptions(model, timeout=0.2, threads=1))) as address:
        connection = http.client.HTTPConnection(address, timeout=20)
        connection.putrequest("POST", "/segment")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"only this")
        assert connection.getresponse().status == 408
        connection.close()


def test_full_queue_and_time_limit(model):
    """The one worker is busy and the one place behind it taken: the next one is refused, whatever it sends."""
    inside, go_on = threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert go_on.wait(120)

    options = HttpOptions(model, queue=1, workers=1, timeout=120, threads=1)
    app = make_app(options, lambda path: Wrapped(open_backend(path, "cpu", 1)))
    statuses = []
    with client_of(app) as client:
        app.state.service.models.current.backend.before = wait

        def ask():
            statuses.append(client.post("/segment", content=IMAGE).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert inside.wait(120)
        while app.state.service.workers.in_use < 2:
            time.sleep(0.005)
        for body in (IMAGE, bytes(5_000_000)):
            full = client.post("/segment", content=body)
            assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
        assert client.get("/v2/health/ready").status_code == 200, "looking in is always possible"
        assert "rcil_queue_length 2.0" in client.get("/metrics").text
        go_on.set()
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]
        assert client.post("/segment", content=IMAGE).status_code == 200
        assert 'rcil_requests_total{route="/segment",status="429"} 2.0' in client.get("/metrics").text


def test_a_model_that_takes_too_long(model):
    go_on = threading.Event()
    options = HttpOptions(model, timeout=1.5, workers=1, threads=1)
    app = make_app(options, lambda path: Wrapped(open_backend(path, "cpu", 1)))
    with client_of(app) as client:
        app.state.service.models.current.backend.before = lambda: go_on.wait(120)
        assert client.post("/segment", content=IMAGE).status_code == 504
        waiting = client.post("/segment", content=IMAGE)
        assert (waiting.status_code, waiting.headers["Retry-After"]) == (503, "1")
        go_on.set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": -1},
        {"workers": 0},
        {"port": 70000},
        {"timeout": 0},
        {"token": ""},
        {"token": "a\nb"},
        {"token": "é"},
        {"name": "a/b"},
    ],
)
def test_impossible_options(model, wrong):
    with pytest.raises(ConfigError):
        HttpOptions(model, **wrong)


def test_who_can_reach_it(model):
    assert not HttpOptions(model).open_to_all
    assert HttpOptions(model, host="0.0.0.0").open_to_all
    assert not HttpOptions(model, host="0.0.0.0", token="x").open_to_all
