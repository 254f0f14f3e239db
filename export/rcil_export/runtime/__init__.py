"""ONNX Runtime: sessions, execution providers, and which graph may run on which."""
