import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from servers import client_of, picture, png, rows_of, write_model

from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions


def samples(client):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.fixture
def path(tmp_path):
    return write_model(tmp_path / "m.onnx", 1)


def test_what_is_counted(path):
    images = [picture(seed) for seed in range(3)]
    with client_of(make_app(HttpOptions(path, queue=3, workers=2, threads=1))) as client:
        for image in images:
            client.post("/segment", content=png(image))
        client.post("/segment", content=b"none")
        client.get("/nowhere")
        found = samples(client)
        assert found["rcil_requests_total", ("route", "/segment"), ("status", "200")] == 3
        assert found["rcil_requests_total", ("route", "/segment"), ("status", "400")] == 1
        assert found["rcil_requests_total", ("route", "other"), ("status", "404")] == 1
        for stage in ("read", "wait", "decode", "infer", "encode"):
            assert found["rcil_stage_seconds_count", ("stage", stage)] == 3
        assert found["rcil_stage_seconds_sum", ("stage", "infer")] > 0
        assert found[("rcil_queue_length",)] == 0
        assert found[("rcil_queue_places",)] == 5
        assert found[("rcil_model_step",)] == 1
        [info] = [key for key in found if key[0] == "rcil_model_info"]
        assert dict(info[1:])["step"] == "1" and len(dict(info[1:])["sha256"]) == 64
        for row, name in enumerate(("background", "road", "cone")):
            mean = np.mean([(rows_of(image, 1) == row).mean() for image in images])
            assert found["rcil_class_share", ("class", name)] == pytest.approx(mean)


def test_shares_begin_anew_with_another_model(path):
    with client_of(make_app(HttpOptions(path, threads=1))) as client:
        assert not [key for key in samples(client) if key[0] == "rcil_class_share"]
        client.post("/segment", content=png(picture(0)))
        write_model(path, 2)
        client.post("/v2/repository/models/rcil/load")
        image = picture(5)
        client.post("/segment", content=png(image))
        client.post("/segment?model=previous", content=png(picture(6)))
        found = samples(client)
        for row, name in enumerate(("background", "road", "cone", "ball")):
            assert found["rcil_class_share", ("class", name)] == pytest.approx((rows_of(image, 2) == row).mean())
        assert found[("rcil_model_step",)] == 2


def test_apps_do_not_share_counts(path):
    first, second = (make_app(HttpOptions(path, threads=1)) for _ in range(2))
    with client_of(first) as client:
        client.post("/segment", content=png(picture(0)))
    with client_of(second) as client:
        assert ("rcil_requests_total", ("route", "/segment"), ("status", "200")) not in samples(client)
