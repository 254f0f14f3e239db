"""Judging a graph of fewer bits with the same comparison, images and limits as the final check."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil_export.checks.artefact import Artefact, Prediction
from rcil_export.checks.limits import Limits
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import PARTS, OutputsReport
from rcil_export.images import CheckImages
from rcil_export.precision.int8.search import Judgement


def judgements(report: OutputsReport) -> list[Judgement]:
    """Agreement and loss of mIoU of all, old and new classes, as far as they could be measured; the worst first."""
    limits, found = report.limits, []
    for part in PARTS:
        numbers = report.parts[part]
        name = "agreement" if part == "all" else "agreement_old_new"
        if numbers.classes and not math.isnan(share := numbers.agreement.share):
            found.append(Judgement(name, part, 100 * share, 100 * (getattr(limits, name) - share)))
        if not math.isnan(drop := numbers.miou_drop):
            found.append(Judgement("miou_drop", part, drop, drop - limits.miou_drop))
    return sorted(found, key=lambda judgement: -judgement.excess)


class Criterion:
    """Compares graphs with a reference whose masks are computed once.

    Masks alone are compared, so a tie counts as a difference: the final check, which forgives ties, is never stricter.

    Args:
        reference: The network before the conversion.
        images: To judge on; the same for every graph.
        limits: Those of the final check.
    """

    def __init__(self, reference: Artefact, images: CheckImages, limits: Limits) -> None:
        self._reference = _Masks(reference, remember=True)
        self._images = images
        self._limits = limits

    def judge(self, candidate: Artefact) -> list[Judgement]:
        """All limited numbers of `candidate`, the worst first."""
        return judgements(compare_outputs(self._reference, _Masks(candidate), self._images, self._limits))


class _Masks(Artefact):
    """An artefact that gives masks alone, and remembers them on request."""

    def __init__(self, inner: Artefact, *, remember: bool = False) -> None:
        super().__init__(inner.name, inner.metadata, inner.precision, inner.shape)
        self._inner = inner
        self._known: dict[bytes, NDArray[np.uint16]] | None = {} if remember else None

    def predict(self, image: Image) -> Prediction:
        """See `Artefact.predict`."""
        if self._known is None:
            return Prediction(self._inner.predict(image).mask, None)
        key = hashlib.sha256(image.tobytes()).digest() + str(image.shape).encode()
        if key not in self._known:
            self._known[key] = self._inner.predict(image).mask.astype(np.uint16)
        return Prediction(self._known[key].astype(np.int64), None)
