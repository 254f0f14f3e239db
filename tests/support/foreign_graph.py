"""An ONNX file as other programs write it."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def theirs(path, *, size=(48, 64), full=True, softmax=False, opset=13, classes=3, extra=()):
    """A graph as other programs write them: a `Constant` node, names like ours, an old opset, a second output."""
    generator = np.random.default_rng(0)
    kernels = {"w1": (8, 3, 3, 3), "w2": (classes, 8, 3, 3)}
    constants = [
        numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name)
        for name, shape in kernels.items()
    ]
    stride = 1 if full else 2
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], pads=[1] * 4, strides=[stride] * 2),
        helper.make_node("Relu", ["a"], ["mask"]),
        helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5))),
        helper.make_node("Mul", ["mask", "half"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["scores" if softmax else "pred"], pads=[1] * 4),
        *([helper.make_node("Softmax", ["scores"], ["pred"], axis=1)] if softmax else []),
        *extra,
    ]
    sides = size or ("height", "width")
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, *sides])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("mask", "pred")]
    graph = helper.make_graph(nodes, "theirs", [image], outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path
