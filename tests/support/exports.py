"""Small networks, their descriptions and images for tests of the exporter."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import torch
from networks import at_step, small_arch

from rcil.inference import as_input
from rcil.model.metadata import LITE_MEAN, LITE_STD, Metadata, class_table
from rcil.nn import Segmenter


def described(backbone: str = "resnet18", step: int = 1, **changes: object) -> tuple[Segmenter, Metadata]:
    """A network after `step` transitions, with both branches, and its description."""
    model = at_step(small_arch(backbone, **changes), step)
    look = {"mean": LITE_MEAN, "std": LITE_STD} if backbone.startswith("efficientnet_lite") else {}
    classes = class_table([list(names) for names in model.classifier.steps])
    return model, Metadata(architecture=model.arch, classes=classes, step=step, **look)


def photographs(count: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    """uint8 [N, H, W, 3] with large shapes and fine grain."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 4, 5, 3), dtype=np.uint8).astype(np.float32)
    wide = coarse.repeat(-(-height // 4), 1).repeat(-(-width // 5), 2)[:, :height, :width]
    return np.clip(wide + rng.normal(0, 20, wide.shape), 0, 255).astype(np.uint8)


def run_onnx(document: onnx.ModelProto, image: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs by name on ONNX Runtime's CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(document.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"image": image}), strict=True))


@torch.no_grad()
def torch_logits(model: Segmenter, metadata: Metadata, images: np.ndarray) -> np.ndarray:
    """Logits [N, classes, H, W] of the network on uint8 images [N, H, W, 3]."""
    return model(torch.stack([as_input(metadata, image) for image in images])).numpy()
