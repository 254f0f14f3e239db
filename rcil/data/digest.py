"""A fingerprint of training data, for the record of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rcil.core.files import sha256_of
from rcil.data.types import Sample


def data_digest(samples: Iterable[Sample]) -> str:
    """SHA-256 over names and contents of images and masks, whatever their order."""
    digest = hashlib.sha256()
    for sample in sorted(samples, key=lambda s: s.name):
        digest.update(f"{sample.name}\0{sha256_of(sample.image)}\0{sha256_of(sample.mask)}\n".encode())
    return digest.hexdigest()
