import tempfile

import numpy as np
import pytest
from servers import Wrapped, client_of, jpeg, picture, png, rows_of, unpng, write_model
from triton_server import metadata_of

from rcil.core.errors import RunError
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.painter import Painter

IMAGE = picture(3)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    new, old = write_model(folder / "new.onnx", 2), write_model(folder / "old.onnx", 1)
    with client_of(make_app(HttpOptions(new, previous=old, threads=1))) as client:
        yield client


@pytest.mark.parametrize("form", [True, False])
def test_mask(client, form):
    sent = {"files": {"image": ("a.png", png(IMAGE))}} if form else {"content": png(IMAGE)}
    answer = client.post("/segment", **sent)
    assert answer.status_code == 200 and answer.headers["content-type"] == "image/png"
    np.testing.assert_array_equal(unpng(answer.content), rows_of(IMAGE, 2))
    assert answer.headers["X-Rcil-Step"] == "2"
    assert float(answer.headers["X-Rcil-Latency-Ms"]) > 0
    assert [part.split(";")[0] for part in answer.headers["Server-Timing"].split(", ")] == [
        "read",
        "wait",
        "decode",
        "infer",
        "encode",
    ]


def test_previous_model(client):
    answer = client.post("/segment?model=previous", content=png(IMAGE))
    np.testing.assert_array_equal(unpng(answer.content), rows_of(IMAGE, 1))
    assert answer.headers["X-Rcil-Step"] == "1"


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_overlay(client, alpha):
    answer = client.post("/segment", params={"output": "overlay", "alpha": alpha}, content=png(IMAGE))
    classes = metadata_of([["background", "road"], ["cone"], ["ball"]]).classes
    np.testing.assert_array_equal(unpng(answer.content), Painter(classes, alpha).paint(IMAGE, rows_of(IMAGE, 2)))


def test_numbers(client):
    answer = client.post("/segment?output=json", content=png(IMAGE)).json()
    rows = rows_of(IMAGE, 2)
    assert (answer["height"], answer["width"], answer["step"]) == (24, 40, 2)
    assert [c["name"] for c in answer["classes"]] == ["background", "road", "cone", "ball"]
    assert [c["share"] for c in answer["classes"]] == [pytest.approx((rows == row).mean()) for row in range(4)]
    assert answer["classes"][1]["colour"] == [51, 34, 136], "the colour of a road"


def test_images_of_another_size_come_back_at_their_own(client):
    answer = client.post("/segment", content=jpeg(picture(0, 160, 104)))
    assert unpng(answer.content).shape == (160, 104)


@pytest.mark.parametrize(
    ("address", "sent", "status", "words"),
    [
        ("/segment", {"content": b"no image"}, 400, "neither PNG nor JPEG"),
        ("/segment", {"content": b""}, 400, "neither PNG nor JPEG"),
        ("/segment", {"files": {"image": b"no image"}}, 400, "neither PNG nor JPEG"),
        ("/segment", {"data": {"a": "b"}, "files": {}}, 400, "neither PNG nor JPEG"),
        ("/segment", {"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "form"),
        ("/segment", {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=y"}}, 400, "form"),
        ("/segment?output=video", {"content": png(IMAGE)}, 400, "output"),
        ("/segment?alpha=2", {"content": png(IMAGE)}, 400, "alpha"),
        ("/segment?model=other", {"content": png(IMAGE)}, 400, "model"),
    ],
)
def test_refusals(client, address, sent, status, words):
    answer = client.post(address, **sent)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_a_form_without_a_file(client):
    boundary = b'--y\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--y--\r\n'
    answer = client.post("/segment", content=boundary, headers={"content-type": "multipart/form-data; boundary=y"})
    assert (answer.status_code, "no file" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("end", [b"", b"\r\n--y--\r\n"])
def test_uploads_are_closed_even_if_their_part_never_ends(client, monkeypatch, end):
    opened = []

    class Recorded(tempfile.SpooledTemporaryFile):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            opened.append(self)

    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", Recorded)
    part = b'--y\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n' + png(IMAGE) + end
    answer = client.post("/segment", content=part, headers={"content-type": "multipart/form-data; boundary=y"})
    assert answer.status_code == (200 if end else 400)
    assert len(opened) == 1 and opened[0].closed


def test_a_model_that_fails_is_the_servers_fault(tmp_path):
    def fail():
        raise RunError("out of memory", "Buy more.")

    app = make_app(
        HttpOptions(write_model(tmp_path / "m.onnx", 1), threads=1), lambda path: Wrapped(open_backend(path))
    )
    with client_of(app) as client:
        app.state.service.models.current.backend.before = fail
        answer = client.post("/segment", content=png(IMAGE))
        assert (answer.status_code, answer.json()) == (500, {"error": "out of memory. Buy more."})
        assert client.post("/segment?model=previous", content=png(IMAGE)).status_code == 404


@pytest.mark.parametrize(("last", "kind"), [(255, np.uint8), (300, np.uint16)])
def test_ids_stand_for_rows_unless_rows_are_asked_for(tmp_path, last, kind):
    metadata = metadata_of([["background", "road"], ["cone"]])
    ids = np.array((0, 9, last))
    classes = tuple(c.model_copy(update={"id": int(i)}) for c, i in zip(metadata.classes, ids, strict=True))
    path = write_model(tmp_path / "m.onnx", 1, metadata=metadata.model_copy(update={"classes": classes}))
    with client_of(make_app(HttpOptions(path, threads=1))) as client:
        mask, rows = (unpng(client.post(f"/segment?output={o}", content=png(IMAGE)).content) for o in ("mask", "rows"))
    np.testing.assert_array_equal(mask, ids[rows_of(IMAGE, 1)])
    assert mask.dtype == kind
    np.testing.assert_array_equal(rows, rows_of(IMAGE, 1))
    assert rows.dtype == np.uint8
