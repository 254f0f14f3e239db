"""What an open port must not do."""

import asyncio
import hmac

import httpx
import pytest
from servers import picture, png, write_model

from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.protocol.messages import HEADER_LENGTH
from rcil_serve.http.run import make_server

TENSOR = {"name": "image", "datatype": "UINT8", "shape": [1, 24, 40, 3], "data": [0] * 2880}
LOAD = "/v2/repository/models/rcil/load"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "m.onnx", 1)


def asked(app, method, path, **sent):
    async def ask():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, **sent)

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def app(model):
    return make_app(HttpOptions(model, threads=1))


@pytest.mark.parametrize(
    "path",
    ["/docs", "/redoc", "/openapi.json", "/debug", "/page", "/page/", "/page/page.html", "/page.html", "/static/",
     "/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "//etc/passwd", "/v2/models/..%2f..%2fm", "/v2/models/../../m"],
)  # fmt: skip
def test_there_is_nothing_but_the_routes(app, path):
    answer = asked(app, "GET", path)
    assert answer.status_code == 404
    assert answer.json().keys() == {"error"}


def test_other_sites_are_not_let_in(app):
    """Plain browsers name the page's site to addresses that are not trusted, such as one on the local network."""
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method, path, status in (("OPTIONS", "/segment", 403), ("GET", "/classes", 200), ("POST", "/segment", 403)):
        answer = asked(app, method, path, headers=headers, content=png(picture(0)))
        assert answer.status_code == status, method
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://here"}, 200),
        ({"Origin": "http://HERE"}, 200),
        ({"Origin": "http://here:8001"}, 403),
        ({"Origin": "http://here", "Host": "here:8000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://site.example", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://here", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_who_may_ask(app, headers, status):
    """A proxy may change the host; browsers that talk to it by HTTPS say themselves whose page asks."""
    assert asked(app, "POST", "/segment", headers=headers, content=png(picture(0))).status_code == status


def test_the_page_runs_its_own_scripts_alone(app):
    headers = asked(app, "GET", "/").headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    for path in ("/", "/page.js", "/classes", "/nowhere", "/metrics"):
        assert asked(app, "GET", path).headers["X-Content-Type-Options"] == "nosniff"


def test_the_server_listens_on_this_machine_alone_and_does_not_wait_forever(app):
    assert HttpOptions.host == "127.0.0.1"
    config = make_server(app, 30).config
    assert (config.server_header, config.ws) == (False, "none")
    assert config.timeout_keep_alive <= 5


def test_the_token_is_compared_in_constant_time(model, monkeypatch):
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    app = make_app(HttpOptions(model, token="right", threads=1))
    assert asked(app, "GET", "/classes", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert compared == [(b"wrong", b"right")]


@pytest.mark.parametrize("number", ["1" * 5000, "9" * 19, "-1", "0", "1.0", "x"])
def test_lengths_that_are_none(app, number):
    """Python refuses to read a number of 5000 digits, with an error of its own."""
    answer = asked(app, "POST", "/v2/models/rcil/infer", content=b"{}", headers={HEADER_LENGTH: number})
    assert answer.status_code == 400
    assert len(answer.text) < 200
    stated = asked(app, "POST", "/segment", content=b"x", headers={"Content-Length": "1" * 5000})
    assert stated.status_code == 413


def test_an_output_may_be_asked_for_once(app):
    """A request of a few megabytes could ask for terabytes."""
    for times, status in ((1, 200), (2, 400)):
        body = {"inputs": [TENSOR], "outputs": [{"name": "mask"}] * times}
        assert asked(app, "POST", "/v2/models/rcil/infer", json=body).status_code == status


def test_a_reload_takes_no_place_and_so_no_large_body(app):
    assert asked(app, "POST", LOAD, content=b" " * 2**16 + b"{}").status_code == 413
