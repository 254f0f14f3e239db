"""Backends that run a model, ONNX Runtime and TensorRT, behind one protocol."""

from rcil_serve.runtime.backends.open import open_backend
from rcil_serve.runtime.backends.protocol import Backend, Outputs

__all__ = ["Backend", "Outputs", "open_backend"]
