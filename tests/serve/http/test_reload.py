import threading

import numpy as np
import onnx
import pytest
from servers import ANY_SIZE, FIXED, Wrapped, client_of, picture, png, rows_of, unpng, write_model
from triton_server import metadata_of

from rcil.core.errors import CheckpointError
from rcil_export.graph.shapes import InputShape
from rcil_serve.http.app import make_app
from rcil_serve.http.models import Model
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.reload import agreement, checked_mask, incompatibilities
from rcil_serve.runtime.backends import open_backend

IMAGE = picture(1)
LOAD = "/v2/repository/models/rcil/load"


@pytest.fixture
def path(tmp_path):
    return write_model(tmp_path / "model.onnx", 1)


@pytest.fixture
def client(path):
    with client_of(make_app(HttpOptions(path, threads=1))) as client:
        yield client


def step_that_answers(client):
    answer = client.post("/segment", content=png(IMAGE))
    step = int(answer.headers["X-Rcil-Step"])
    np.testing.assert_array_equal(unpng(answer.content), rows_of(IMAGE, step))
    return step


def reloads(client):
    lines = client.get("/metrics").text.splitlines()
    counts = (line.rpartition(" ") for line in lines if line.startswith("rcil_reloads_total{"))
    return {name.split('"')[1]: float(count) for name, _, count in counts}


def test_a_newer_model_takes_over(client, path):
    assert step_that_answers(client) == 1
    write_model(path, 2)
    assert step_that_answers(client) == 1, "nothing happens by itself"
    report = client.post(LOAD, json={})
    assert report.status_code == 200
    before, after = rows_of(IMAGE, 1), rows_of(IMAGE, 2)
    same = float((before == after).mean())
    assert report.json()["agreement"]["pixels"] == pytest.approx(same)
    union = ((before == 2) | (after == 2)).sum()
    assert report.json()["agreement"]["classes"]["cone"] == pytest.approx(((before == 2) & (after == 2)).sum() / union)
    assert step_that_answers(client) == 2
    previous = client.post("/segment?model=previous", content=png(IMAGE))
    np.testing.assert_array_equal(unpng(previous.content), before)
    assert client.get("/classes").json()["previous"]["step"] == 1
    assert reloads(client) == {"done": 1, "refused": 0, "failed": 0, "untrusted": 0}
    assert 'step="2"' in client.get("/metrics").text and 'step="1"' not in client.get("/metrics").text


def spoiled(path, how):
    match how:
        case "gone":
            path.unlink()
        case "cut off":
            path.write_bytes(path.read_bytes()[:-200])
        case "empty":
            path.write_bytes(b"")
        case "undescribed":
            document = onnx.load(path)
            del document.metadata_props[:]
            onnx.save(document, path)
        case "more rows than classes":
            write_model(path, 3)
            document, other = onnx.load(path), onnx.load(write_model(path.with_name("other.onnx"), 1))
            del document.metadata_props[:]
            document.metadata_props.extend(other.metadata_props)
            onnx.save(document, path)


@pytest.mark.parametrize("how", ["gone", "cut off", "empty", "undescribed", "more rows than classes"])
def test_a_bad_file_leaves_the_old_model(client, path, how):
    step_that_answers(client)
    spoiled(path, how)
    answer = client.post(LOAD, json={"parameters": {"force": True}})
    assert answer.status_code == 422
    assert "the old model keeps serving" in answer.json()["error"] and "model.onnx" in answer.json()["error"]
    assert step_that_answers(client) == 1
    assert reloads(client) == {"done": 0, "refused": 0, "failed": 1, "untrusted": 0}
    write_model(path, 2)
    assert client.post(LOAD).status_code == 200, "mended"
    assert step_that_answers(client) == 2


def test_lost_classes_need_force(client, path):
    write_model(path, 0)
    answer = client.post(LOAD, json={})
    assert answer.status_code == 422 and "does not know cone" in answer.json()["error"]
    assert step_that_answers(client) == 1
    assert reloads(client) == {"done": 0, "refused": 1, "failed": 0, "untrusted": 0}
    forced = client.post(LOAD, json={"parameters": {"force": True}})
    assert forced.status_code == 200 and forced.json()["missing"] == ["it does not know cone"]
    assert step_that_answers(client) == 0


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"parameters": 3}', b'{"parameters": {"config": "{}"}}'])
def test_reloads_that_cannot_be_read(client, body):
    assert client.post(LOAD, content=body).status_code == 400
    assert client.post(LOAD.replace("rcil", "other"), content=b"{}").status_code == 404


def test_a_request_under_way_finishes_on_the_old_model(path):
    inside, go_on = threading.Event(), threading.Event()
    opened = []

    def opener(file):
        opened.append(Wrapped(open_backend(file, "cpu", 1)))
        return opened[-1]

    def wait():
        inside.set()
        assert go_on.wait(20)

    app = make_app(HttpOptions(path, threads=1), opener)
    with client_of(app) as client:
        answers = []
        write_model(path, 2)
        app.state.service.models.current.backend.before = wait
        slow = threading.Thread(target=lambda: answers.append(client.post("/segment", content=png(IMAGE))))
        slow.start()
        assert inside.wait(20)
        app.state.service.models.current.backend.before = lambda: None
        assert client.post(LOAD).status_code == 200
        assert step_that_answers(client) == 2
        write_model(path, 3)
        assert client.post(LOAD).status_code == 200
        assert opened[0].closed == 0, "it still runs"
        go_on.set()
        slow.join()
        assert answers[0].headers["X-Rcil-Step"] == "1"
        np.testing.assert_array_equal(unpng(answers[0].content), rows_of(IMAGE, 1))
        assert opened[0].closed == 1
    assert [backend.closed for backend in opened] == [1, 1, 1], "all are closed when the server stops"


def test_one_reload_at_a_time(path):
    inside, go_on = threading.Event(), threading.Event()
    calls = []

    def opener(file):
        calls.append(file)
        if len(calls) == 2:
            inside.set()
            assert go_on.wait(20)
        return open_backend(file, "cpu", 1)

    with client_of(make_app(HttpOptions(path, threads=1), opener)) as client:
        answers = []
        first = threading.Thread(target=lambda: answers.append(client.post(LOAD)))
        first.start()
        assert inside.wait(20)
        assert client.post(LOAD).status_code == 409
        go_on.set()
        first.join()
        assert answers[0].status_code == 200


def test_a_bad_model_does_not_start(path):
    spoiled(path, "cut off")
    with pytest.raises(CheckpointError):
        make_app(HttpOptions(path, threads=1))


def test_what_clients_would_miss(tmp_path):
    def model(name, step=1, interface=FIXED, **changes):
        metadata = metadata_of([["background", "road"], ["cone"]][: step + 1]).model_copy(update=changes)
        return Model(open_backend(write_model(tmp_path / f"{name}.onnx", step, interface, metadata), "cpu", 1))

    old = model("old")
    assert incompatibilities(old, model("same")) == []
    assert incompatibilities(old, model("wider", interface=ANY_SIZE)) == []
    both = FIXED.model_copy(update={"outputs": ("mask", "confidence")})
    [reason] = incompatibilities(model("any", interface=ANY_SIZE), model("fixed", interface=both))
    assert reason == "it accepts 1 x 24 x 40 images instead of 1..4 x 8..512 x 8..512"
    [reason] = incompatibilities(
        old, model("other", interface=FIXED.model_copy(update={"shape": InputShape.of(24, 48)}))
    )
    assert "24 x 48" in reason
    assert incompatibilities(model("sure", interface=both), old) == ["it does not output confidence"]
    assert incompatibilities(old, model("bad", rejected="forgets")) == ["a check after training rejected it: forgets"]
    swapped = tuple(old.classes[row] for row in (0, 2, 1))
    moved = [c.model_copy(update={"step": 0}) for c in swapped]
    assert incompatibilities(old, model("moved", classes=tuple(moved))) == [
        "it has a different row or id for road, cone"
    ]


def test_agreement_matches_by_name(tmp_path):
    old = Model(open_backend(write_model(tmp_path / "old.onnx", 1), "cpu", 1))
    names = metadata_of([["background", "cone"], ["road"]])
    new = Model(open_backend(write_model(tmp_path / "new.onnx", 1, metadata=names), "cpu", 1))
    found = agreement(old, np.array([[0, 1, 2, 2]]), new, np.array([[0, 2, 1, 0]]))
    assert found.pixels == 0.75
    assert found.classes == {"background": 0.5, "road": 1.0, "cone": 0.5}


def test_checked_mask(tmp_path):
    model = Model(open_backend(write_model(tmp_path / "m.onnx", 1), "cpu", 1))
    np.testing.assert_array_equal(checked_mask(model, IMAGE), rows_of(IMAGE, 1))


def test_classes_that_the_new_model_lost_lower_the_agreement(tmp_path):
    """Half of the picture belonged to a class that is gone."""
    old = Model(open_backend(write_model(tmp_path / "old.onnx", 1), "cpu", 1))
    new = Model(open_backend(write_model(tmp_path / "new.onnx", 0), "cpu", 1))
    found = agreement(old, np.array([[0, 1, 2, 2]]), new, np.array([[0, 1, 0, 1]]))
    assert found.pixels == 0.5
    assert found.classes == {"background": 0.5, "road": 0.5, "cone": 0.0}


def test_models_without_a_common_class_agree_nowhere(tmp_path):
    old = Model(open_backend(write_model(tmp_path / "old.onnx", 0), "cpu", 1))
    path = write_model(tmp_path / "new.onnx", 0, metadata=metadata_of([["sky", "sea"]]))
    found = agreement(old, np.array([[0, 1]]), Model(open_backend(path, "cpu", 1)), np.array([[0, 1]]))
    assert (found.pixels, found.classes) == (0.0, {"background": 0.0, "road": 0.0})
