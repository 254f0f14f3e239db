"""From a network to an ONNX graph, node by node; the description, shapes and checks of such a graph."""
