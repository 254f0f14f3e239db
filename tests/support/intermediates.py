"""The values between the layers of a network."""

import torch
from torch import Tensor, fx

from rcil_export.graph.translate import trace, value_name


@torch.no_grad()
def intermediates(model, x):
    """Every value of the evaluation pass on normalised images [N, 3, H, W], by its name in the ONNX graph."""
    values = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if isinstance(result, Tensor) and n.op in ("call_module", "call_function", "call_method"):
                values[value_name(n)] = result.clone()
            return result

    Recorder(trace(model)).run(x, None)
    return values
