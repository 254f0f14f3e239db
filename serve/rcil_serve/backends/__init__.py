"""What runs a model: ONNX Runtime or TensorRT, behind one protocol."""

from rcil_serve.backends.open import DEVICES, Device, open_backend
from rcil_serve.backends.protocol import Backend, Outputs

__all__ = ["DEVICES", "Backend", "Device", "Outputs", "open_backend"]
