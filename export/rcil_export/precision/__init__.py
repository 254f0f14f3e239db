"""Reduced precision: fp16, bf16 and int8, written into the ONNX graph where measured values allow it."""
