"""Lossless masks of class ids, as PNG files or as one video."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rcil.core.files import replacing
from rcil.core.mask_classes import mask_png, names_chunk
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends import Mask
from rcil_serve.stream.frames import Frame, SourceInfo
from rcil_serve.stream.outputs.movie import Movie, check_suffix


class IdTable:
    """Converts class rows of a model to class ids, which masks on disk contain.

    Args:
        classes: Classes in the order of rows.
    """

    def __init__(self, classes: Sequence[ClassInfo]) -> None:
        ids = [c.id for c in classes]
        self.wide = max(ids) > 255
        self._table = np.array(ids, np.uint16 if self.wide else np.uint8)
        self._same = not self.wide and ids == list(range(len(ids)))
        self.chunk = names_chunk({c.id: c.name for c in classes})
        """Records the class names in PNG files."""

    def of(self, mask: Mask) -> Mask:
        """Convert class rows [H, W] to class ids: uint8, or uint16 if any id exceeds 255."""
        return mask if self._same and mask.dtype == np.uint8 else self._table[mask]


class MaskFiles:
    """A folder with one PNG per frame, named after the frame's file or its index.

    Args:
        folder: The folder.
        chunk: Records the class names; see `IdTable`.
    """

    def __init__(self, folder: Path, chunk: bytes) -> None:
        self._folder, self._chunk = folder, chunk
        self._names: set[str] = set()

    def write(self, ids: Mask, frame: Frame) -> None:
        """Write the mask [H, W] of a frame."""
        stem = f"{frame.index:08}"
        if frame.name:
            own = Path(frame.name).stem
            stem = f"{stem}_{own}" if own in self._names else own
            self._names.add(own)
        write_mask(self._folder / f"{stem}.png", ids, self._chunk)

    def finish(self) -> None:
        """See `Movie.finish`. Every file is complete as soon as it is written."""

    def abandon(self) -> None:
        """See `Movie.abandon`."""


def open_masks(path: Path, info: SourceInfo, ids: IdTable, *, offset: float) -> MaskFiles | Movie:
    """Open a video for `masks.mkv`, or a folder for a name without a suffix."""
    if is_folder(path):
        return MaskFiles(path, ids.chunk)
    return Movie(path, info, lossless=True, wide=ids.wide, offset=offset)


def is_folder(path: Path) -> bool:
    """Whether masks are written to a folder; raises if the name is neither a folder nor a lossless video."""
    if path.suffix:
        check_suffix(path, lossless=True)
    return not path.suffix


def write_mask(path: Path, ids: Mask, chunk: bytes) -> None:
    """Write a PNG of class ids [H, W] atomically, with the chunk of their `IdTable`."""
    with replacing(path) as part:
        part.write_bytes(mask_png(ids, chunk))
