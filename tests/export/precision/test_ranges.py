import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from precision_graphs import FIRST, feeds_of, scaled, small_graph

from rcil_export.precision.ranges import float_values, measure_ranges


def test_hand_computed_ranges_and_sums():
    """x = [[1, -2], [3, -4]]; a 1x1 conv by -3 with bias 1, then its mean."""
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["conv"], name="conv", kernel_shape=[1, 1]),
        helper.make_node("GlobalAveragePool", ["conv"], ["mean"], name="mean"),
        helper.make_node("AveragePool", ["conv"], ["window"], name="window", kernel_shape=[1, 2]),
    ]
    constants = [
        numpy_helper.from_array(np.full((1, 1, 1, 1), -3, np.float32), "w"),
        numpy_helper.from_array(np.ones(1, np.float32), "b"),
    ]
    x = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 2, 2])
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("mean", "window")]
    graph = helper.make_graph(nodes, "g", [x], outputs, constants)
    document = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = measure_ranges(document, [{"image": np.array([[[[1, -2], [3, -4]]]], np.float32)}])
    assert found.values == {"conv": 13, "mean": 2.5, "window": 2.5}
    assert found.accumulated == {"conv": 13, "mean": 2 + 7 + 8 + 13, "window": 21}


def test_every_value_is_measured_and_scaling_shows():
    document = small_graph(size=32)
    feeds = feeds_of(document)
    found = measure_ranges(document, feeds)
    assert set(found.values) == set(float_values(document))
    assert all(largest > 0 for largest in found.values.values())
    other = measure_ranges(scaled(document, 1000.0), feeds)
    assert other.values[FIRST] == pytest.approx(1000 * found.values[FIRST], rel=1e-3)
    assert other.accumulated[FIRST] == pytest.approx(1000 * found.accumulated[FIRST], rel=1e-3)
    same = [name for name in found.values if not name.startswith(FIRST[:-2])]
    for name in same:
        assert other.values[name] == pytest.approx(found.values[name], rel=1e-3)
