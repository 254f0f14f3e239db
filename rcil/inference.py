"""Running a network on images: `Model` keeps a network and its metadata together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rcil.checkpoint.file import load_for_inference, save
from rcil.core.allowed_imports import allowing
from rcil.core.errors import ConfigError
from rcil.core.files import sha256_of
from rcil.core.images import Image, scaled
from rcil.core.prediction import Prediction, check_image
from rcil.hardware.devices import choose_device
from rcil.model.metadata import ClassInfo, LineageEntry, Metadata
from rcil.nn import Network, fold
from rcil.nn.attached.network import AttachedNetwork
from rcil.nn.attached.restore import restore

Rows = NDArray[np.uint8]
"""Class rows [H, W]."""


def load(path: str | Path, *, allow: Sequence[str] = ()) -> Model:
    """Load a checkpoint for inference, on the CPU.

    Example:
        >>> model = rcil.load("model.safetensors")
        >>> [c.name for c in model.classes]
        ['background', 'cone', 'ball']

    Args:
        path: A `.safetensors` file of `rcil train`, `rcil add-class`, `rcil import` or `rcil-export fold`.
        allow: Packages whose code may build the network, if it is one of another library, for example `torchvision`.
    """
    path = Path(path)
    with allowing(allow):
        return Model(*load_for_inference(path), path)


@dataclass(frozen=True, eq=False)
class Model:
    """A segmentation network and its metadata.

    Example:
        >>> model = rcil.load("model.safetensors").to("cpu")
        >>> model.step, len(model.lineage)
        (0, 1)
        >>> folded = model.fold()
        >>> folded.save("folded.safetensors")
        >>> rcil.load("folded.safetensors").metadata.architecture.folded
        True
    """

    network: Network
    """The torch module, in evaluation mode."""
    metadata: Metadata
    """Classes, input normalisation, lineage and everything else that the file says about the network."""
    path: Path | None = None
    """The checkpoint that it was loaded from."""

    def __repr__(self) -> str:
        names = ", ".join(c.name for c in self.classes)
        return f"Model({self.metadata.architecture.backbone}, step {self.step}: {names})"

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """The classes in the order of mask rows, each with `name`, `id`, `colour` and `step`."""
        return self.metadata.classes

    @property
    def step(self) -> int:
        """The number of continual steps after the first training."""
        return self.metadata.step

    @property
    def lineage(self) -> tuple[LineageEntry, ...]:
        """How the model came to be, one entry per step, import or fold."""
        return self.metadata.lineage

    @property
    def device(self) -> torch.device:
        """The device that the network is on."""
        return next((parameter.device for parameter in self.network.parameters()), torch.device("cpu"))

    def predict(self, image: Image, *, scale: float | None = None) -> Prediction:
        """Segment one image.

        Args:
            image: RGB uint8 [H, W, 3] of any size.
            scale: The network sees the image at this multiple of its size, by default as in its training; the mask has
                the size of the image.
        """
        rows, confidence = self.segment_with_confidence(check_image(image), scale=scale)
        names, colours = tuple(c.name for c in self.classes), tuple(c.colour for c in self.classes)
        return Prediction(image, rows, float(confidence.mean()), names, colours)

    @cached_property
    def module(self) -> torch.nn.Module:
        """The torch module. That of an attached network has the user's own type.

        Without branches it also has the tensors of the user's own module, by their names; see `fold`.
        """
        network = self.network
        if not isinstance(network, AttachedNetwork):
            return network
        if network.arch.rc is not None or network.arch.folded:
            return network.net
        with allowing([network.arch.package]):  # it was allowed when the network was built
            return restore(network)

    def fold(self, *, keep_norms: bool = False) -> Model:
        """The deployed form: one conv for every RC block and no norm layers; it computes the same masks faster.

        This model is not changed. `rcil.add_class` accepts both forms; the original keeps the statistics of its norms,
        which a folded start replaces by those of the new images.

        Args:
            keep_norms: For attached networks: only the second branches go. `module` of the result then is the user's
                own module, with its norms, and its state dict loads into one that the user's builder made.
        """
        if keep_norms:
            return self._without_branches()
        if self.metadata.architecture.folded:
            return self
        return self._folded_into(fold(self.network)[0])

    def _without_branches(self) -> Model:
        """The network as it was before branches were added, with the weights of both."""
        network = self.network
        if not isinstance(network, AttachedNetwork):
            raise ConfigError("norms are kept for attached networks only", "Use fold().")
        with allowing([network.arch.package]):
            plain = restore(network)
        arch = network.arch.replace(rc=None, folded=False)
        return self._folded_into(AttachedNetwork(plain, arch, network.rows.steps))

    def _folded_into(self, network: Network) -> Model:
        """A model of this one's folded network, with the fold in its lineage."""
        entry = LineageEntry(step=self.step, source="fold", parent_sha256=sha256_of(self.path) if self.path else None)
        update = {"architecture": network.arch, "lineage": (*self.lineage, entry)}
        return Model(network, self.metadata.model_copy(update=update))

    def save(self, path: str | Path) -> None:
        """Write a `.safetensors` checkpoint; the file appears whole or not at all."""
        save(Path(path), self.network, self.metadata)

    def to(self, device: str | torch.device) -> Model:
        """Move the network to `auto`, `cpu`, `cuda` or `cuda:N`, as `torch.nn.Module.to` does; returns the model."""
        target = choose_device(device) if isinstance(device, str) else device
        return replace(self, network=self.network.to(target))

    @cached_property
    def folded(self) -> Model:
        """`fold()`, computed once, for measuring: its lineage has no entry for the fold."""
        return self if self.network.arch.folded else replace(self, network=fold(self.network)[0])

    def segment(self, image: Image, *, scale: float | None = None) -> Rows:
        """Class rows [H, W] of one RGB image [H, W, 3]; see `logits` for the scale."""
        rows: Rows = self.segment_all([image], scale=scale)[0]
        return rows

    def segment_all(self, images: Sequence[Image], *, scale: float | None = None) -> Rows:
        """Class rows [N, H, W] of RGB images [H, W, 3] of one size; see `segment`."""
        rows: Rows = self.logits(images, scale=scale).argmax(1).to(torch.uint8).cpu().numpy()
        return rows

    def segment_with_confidence(self, image: Image, *, scale: float | None = None) -> tuple[Rows, NDArray[np.float32]]:
        """Class rows [H, W] of one RGB image [H, W, 3] and the probability [H, W] of the class of each pixel."""
        probability, rows = self.logits([image], scale=scale).softmax(1).max(1)
        return rows[0].to(torch.uint8).cpu().numpy(), probability[0].float().cpu().numpy()

    @torch.no_grad()
    def logits(self, images: Sequence[Image], *, scale: float | None = None) -> Tensor:
        """Logits [N, classes, H, W] of RGB images [H, W, 3] of one size.

        The network sees the images at `scale` times their size, by default at the scale of its training.
        """
        height, width = images[0].shape[:2]
        scale = self.metadata.training_scale if scale is None else scale
        if scale != 1:
            images = [scaled(image, scale) for image in images]
        pixels = torch.stack([as_input(self.metadata, image) for image in images])
        if self.device.type == "cuda":
            pixels = pixels.pin_memory().to(self.device, non_blocking=True)
        logits: Tensor = self.network(pixels)
        if scale != 1:
            logits = F.interpolate(logits, size=(height, width), mode="bilinear", align_corners=False)
        return logits


def as_input(metadata: Metadata, image: Image) -> Tensor:
    """RGB [H, W, 3] uint8 -> [3, H, W] float, in the colour order and range that the model was trained with."""
    ordered = image if metadata.colour_order == "RGB" else image[..., ::-1]
    pixels = torch.from_numpy(np.ascontiguousarray(ordered)).permute(2, 0, 1).float() / 255
    return (pixels - torch.tensor(metadata.mean).view(3, 1, 1)) / torch.tensor(metadata.std).view(3, 1, 1)
