import json

import pytest
from onnx_models import segmenter

from rcil_export.engine.build import build_engine
from rcil_export.engine.errors import EngineError
from rcil_export.engine.inspect import describe_engine
from rcil_export.engine.options import EngineOptions

pytest.importorskip("tensorrt_rtx")


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "model.engine"
    build_engine(segmenter(tmp_path / "model.onnx"), path, EngineOptions(gpus=("sm86",)))
    return path


def test_the_description_is_json_and_has_the_size(engine, no_rtx):
    document = describe_engine(engine)
    assert json.loads(json.dumps(document)) == document
    assert document["engine"] == "model.engine"
    assert document["bytes"] == len(engine.read_bytes())
    assert document["gpus"] == ["sm86"]
    assert document["inputs"] == [{"name": "image", "dtype": "uint8", "shape": [1, 32, 48, 3]}]


def test_a_changed_engine_is_not_described(engine):
    engine.write_bytes(engine.read_bytes()[:-1])
    with pytest.raises(EngineError, match="is not the file"):
        describe_engine(engine)
