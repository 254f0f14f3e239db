"""The server against its own OpenAPI document; `python -m tools.schema_check` does the same at length."""

import pytest
from servers import ANY_SIZE, write_model

from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from tools.schema_check.schema import hold_to_schema


@pytest.fixture
def app(tmp_path):
    new, old = write_model(tmp_path / "new.onnx", 2, ANY_SIZE), write_model(tmp_path / "old.onnx", 1, ANY_SIZE)
    return make_app(HttpOptions(new, previous=old, threads=1, max_bytes=8000, max_pixels=4000, timeout=600))


@pytest.mark.parametrize("examples", [2, pytest.param(200, marks=pytest.mark.slow)], ids=["few", "many"])
def test_every_answer_is_as_the_schema_says(app, examples):
    statuses = hold_to_schema(app, examples)
    seen = {status for counted in statuses.values() for status in counted}
    assert {200, 400, 404} <= seen
