"""A python-based Triton backend named `onnxruntime`, for servers that bundle the Python backend only.

It serves the repository that `rcil-export --triton` writes without a change to it, and refuses at load time what the
compiled backend refuses: tensors whose names, types or fixed sizes are not those of the ONNX file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton

ONNX_TYPES = {"TYPE_UINT8": "tensor(uint8)", "TYPE_INT32": "tensor(int32)", "TYPE_FP32": "tensor(float)"}


class TritonPythonModel:
    """One version of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the version's ONNX file and compare it with the configuration."""
        config = json.loads(args["model_config"])
        path = Path(args["model_repository"], args["model_version"], config["default_model_filename"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.batched = config["max_batch_size"] > 0
        for declared, found in (
            (config["input"], self.session.get_inputs()),
            (config["output"], self.session.get_outputs()),
        ):
            _compare(declared, found, batched=self.batched)
        self.outputs = [output["name"] for output in config["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run the requests of one image size as one batch, and split the outputs."""
        images = [triton.get_input_tensor_by_name(request, "image").as_numpy() for request in requests]
        if not self.batched:
            return [self._respond(self.session.run(self.outputs, {"image": image})) for image in images]
        results = self.session.run(self.outputs, {"image": np.concatenate(images)})
        ends = np.cumsum([len(image) for image in images])[:-1]
        return [self._respond(parts) for parts in zip(*(np.split(result, ends) for result in results), strict=True)]

    def _respond(self, arrays: Any) -> Any:
        tensors = [triton.Tensor(name, np.ascontiguousarray(a)) for name, a in zip(self.outputs, arrays, strict=True)]
        return triton.InferenceResponse(output_tensors=tensors)


def _compare(declared: list[dict[str, Any]], found: list[Any], *, batched: bool) -> None:
    """Raise if the configuration contradicts the file."""
    actual = {tensor.name: tensor for tensor in found}
    for tensor in declared:
        name, dims = tensor["name"], [int(size) for size in tensor["dims"]]
        if name not in actual:
            raise triton.TritonModelException(f"the ONNX has no tensor '{name}', only {sorted(actual)}")
        shape = [size if isinstance(size, int) else -1 for size in actual[name].shape]
        expected = [-1, *dims] if batched else dims
        if shape != expected or actual[name].type != ONNX_TYPES[tensor["data_type"]]:
            raise triton.TritonModelException(
                f"tensor '{name}' is {actual[name].type} {shape} in the ONNX and "
                f"{tensor['data_type']} {expected} in config.pbtxt"
            )
