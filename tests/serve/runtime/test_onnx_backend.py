import weakref

import numpy as np
import onnx
import pytest
from onnx import helper
from servers import SIZE, write_model

from rcil.core.errors import CheckpointError, RunError
from rcil_serve.runtime.onnx_backend import OnnxBackend


def test_a_description_that_is_no_text_is_named(tmp_path, capfd):
    document = onnx.load(write_model(tmp_path / "m.onnx", 1))
    helper.set_model_props(document, {entry.key: entry.value for entry in document.metadata_props} | {"x": "MARK"})
    (tmp_path / "m.onnx").write_bytes(document.SerializeToString().replace(b"MARK", b"\xff\xfe\xff\xfe"))
    with pytest.raises(CheckpointError, match=r"m\.onnx is not an ONNX file, or damaged\nExport it again"):
        OnnxBackend(tmp_path / "m.onnx", threads=1)
    (tmp_path / "m.onnx").write_bytes(document.SerializeToString()[:-40])
    with pytest.raises(CheckpointError, match=r"m\.onnx"):
        OnnxBackend(tmp_path / "m.onnx", threads=1)
    assert not capfd.readouterr().out, "ONNX Runtime tried again and said so"


def test_a_closed_model_gives_its_memory_back(tmp_path):
    backend = OnnxBackend(write_model(tmp_path / "m.onnx", 1), threads=1)
    session = weakref.ref(backend._session)
    batch = np.zeros((1, *SIZE, 3), np.uint8)
    assert backend.run(batch).mask.shape == (1, *SIZE)
    backend.close()
    backend.close()
    assert session() is None
    with pytest.raises(RunError, match="is closed"):
        backend.run(batch)
