"""Models that ask for files outside their folder, or for more memory than there is."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from servers import FIXED, write_model
from triton_server import metadata_of

from rcil.core.errors import CheckpointError, ConfigError, RcilError
from rcil.model.header import METADATA_KEY
from rcil_export.graph.interface import INTERFACE_KEY
from rcil_export.graph.onnx_file import load_document, read_onnx
from rcil_export.graph.shapes import parse_shape
from rcil_serve.runtime.backends import open_backend


def with_outside_tensor(path, location):
    """A graph one of whose tensors lies in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor])
    document = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    metadata = metadata_of([["background", "a"]])
    for key, text in ((METADATA_KEY, metadata.model_dump_json()), (INTERFACE_KEY, FIXED.model_dump_json())):
        document.metadata_props.add(key=key, value=text)
    path.write_bytes(document.SerializeToString())
    return path


@pytest.mark.parametrize("location", ["../secret.bin", "{folder}/secret.bin", "link.bin"])
def test_tensors_outside_the_folder_are_not_read(tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "link.bin").symlink_to("../secret.bin")
    path = with_outside_tensor(tmp_path / "model" / "m.onnx", location.format(folder=tmp_path))
    with pytest.raises(CheckpointError, match=r"m\.onnx"):
        load_document(path)
    with pytest.raises(RcilError, match=r"m\.onnx"):
        open_backend(path, "cpu", 1)


def test_a_model_that_takes_absurd_images_is_refused(tmp_path):
    path = write_model(tmp_path / "m.onnx", 1)
    document = onnx.load(path)
    entry = next(entry for entry in document.metadata_props if entry.key == INTERFACE_KEY)
    described = json.loads(entry.value)
    described["shape"]["height"] = described["shape"]["width"] = {"low": 10**6, "usual": 10**6, "high": 10**6}
    entry.value = json.dumps(described)
    path.write_bytes(document.SerializeToString())
    for read in (read_onnx, lambda path: open_backend(path, "cpu", 1)):
        with pytest.raises(CheckpointError, match="more than 1073741824 pixels"):
            read(path)
    with pytest.raises(ConfigError, match="too large"):
        parse_shape("99999x99999", None)
