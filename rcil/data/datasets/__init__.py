"""Readers of the published dataset layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.reading import readable
from rcil.data.datasets.ade import read_ade
from rcil.data.datasets.cityscapes import CITIES, read_cityscapes
from rcil.data.datasets.voc import read_voc
from rcil.data.types import Sample, SegmentationData

READERS: dict[str, Callable[[Path], SegmentationData]] = {
    "voc": read_voc,
    "ade": read_ade,
    "cityscapes": read_cityscapes,
}


def open_dataset(kind: str, root: Path) -> SegmentationData:
    """Read the layout of a published dataset without decoding images or masks.

    Args:
        kind: `voc`, `ade` or `cityscapes`.
        root: The folder that the dataset was unpacked into.

    Raises:
        ConfigError: No such kind.
        DataError: A folder or file of the layout is missing.
    """
    if kind not in READERS:
        raise ConfigError(f"unknown dataset '{kind}'", did_you_mean(kind, READERS))
    with readable(root):
        return READERS[kind](root)


def domains_of(kind: str, samples: Iterable[Sample]) -> list[str]:
    """Domains of the samples in the order in which protocols number them.

    Sorted by name; the cities of Cityscapes come in the order of the research code.
    """
    found = {sample.domain for sample in samples if sample.domain}
    known = [city for city in CITIES if city in found] if kind == "cityscapes" else []
    return known + sorted(found.difference(known))
