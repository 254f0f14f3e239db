"""Whether an ONNX file is built like the network that it claims to be."""
