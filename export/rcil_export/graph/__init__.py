"""From a network to an ONNX graph, node by node."""
