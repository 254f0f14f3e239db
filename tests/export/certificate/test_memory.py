import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import call
from onnx import TensorProto, helper, numpy_helper

from rcil.demo.run import BASE
from rcil_export.certificate import memory as memory
from rcil_export.certificate.memory import MemoryMeasureError, peak_memory

MIB = 2**20
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")


def graph_with(path, mib):
    """image [1, 64] -> a product with a matrix of so many MiB."""
    matrix = np.full((64, mib * MIB // 256), 0.5, np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["image", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(matrix, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def test_a_larger_graph_takes_more_and_the_callers_memory_does_not_count(tmp_path):
    small = peak_memory(graph_with(tmp_path / "small.onnx", 1), (1, 64))
    ballast = np.ones(400 * MIB, np.uint8)
    large = peak_memory(graph_with(tmp_path / "large.onnx", 64), (1, 64))
    del ballast
    assert 1 * MIB <= small <= 40 * MIB
    assert 63 * MIB <= large - small <= 300 * MIB


def test_peaks_of_one_graph_are_close(tmp_path):
    """With glibc's default threshold, this graph takes 64, 76 or 88 MiB."""
    model = tmp_path / "model.onnx"
    done = call("rcil-export onnx", str(BASE), "-o", str(model), "--size", "288x384")
    assert done.code == 0, done.err
    peaks = [peak_memory(model, (1, 288, 384, 3), threads=2) for _ in range(6)]
    assert max(peaks) - min(peaks) < 4 * MIB


def test_a_graph_that_does_not_run_is_named(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(MemoryMeasureError, match=r"broken.onnx could not be run"):
        peak_memory(path, (1, 64))


def test_a_system_without_proc_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "STATUS", Path("/nowhere/status"))
    with pytest.raises(MemoryMeasureError, match="does not have"):
        peak_memory(tmp_path / "m.onnx", (1, 64))
