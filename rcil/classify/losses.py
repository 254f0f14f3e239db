"""Losses of continual classification: pure functions of scores, maps and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 2.0


def heads_distillation(new: Tensor, old: Tensor, heads: Sequence[int], temperature: float = TEMPERATURE) -> Tensor:
    """Distillation of EEIL: binary cross entropy between the softened softmaxes of every old head, summed over heads.

    The softmax of a head with a single class is always 1, so such a head adds 0.

    Args:
        new: The student's scores [N, classes], old classes first.
        old: The teacher's scores [N, old classes].
        heads: Number of classes of each old head.
        temperature: Scores are divided by it.
    """
    total = new.new_zeros(())
    mine_by_head = torch.split(new[:, : old.shape[1]], list(heads), dim=1)
    for mine, theirs in zip(mine_by_head, torch.split(old, list(heads), dim=1), strict=True):
        if mine.shape[1] > 1:
            total = total + F.binary_cross_entropy(
                (mine / temperature).softmax(dim=1), (theirs / temperature).softmax(dim=1)
            )
    return total


def nca(scores: Tensor, labels: Tensor, scale: Tensor, margin: float) -> Tensor:
    """NCA loss of PODNet: the true class must exceed all others together by a margin; mean over samples.

    [ log sum_{i != y} exp(scale * s_i) - scale * (s_y - margin) ]_+

    Args:
        scores: Scaled similarities scale * s [N, classes].
        labels: Rows [N].
        scale: The factor in the scores.
        margin: In cosines.
    """
    rows = labels.unsqueeze(1)
    others = scores.scatter(1, rows, float("-inf")).logsumexp(dim=1)
    return F.relu(others - (scores.gather(1, rows).squeeze(1) - scale * margin)).mean()


def pod_spatial(new: Sequence[Tensor], old: Sequence[Tensor]) -> Tensor:
    """Distance between the normalised sums over height and over width of squared maps.

    Args:
        new: The student's maps [N, C, H, W].
        old: The teacher's maps of the same layers.
    """
    distances = [torch.linalg.vector_norm(_strips(a) - _strips(b), dim=1).mean() for a, b in zip(new, old, strict=True)]
    return torch.stack(distances).mean()


def pod_flat(new: Tensor, old: Tensor) -> Tensor:
    """1 - cosine of two embeddings [N, C], mean over samples."""
    return (1 - F.cosine_similarity(new, old, dim=1)).mean()


def _strips(x: Tensor) -> Tensor:
    """[N, C, H, W] -> [N, C * (W + H)] of length 1."""
    squared = x.square()
    return F.normalize(torch.cat((squared.sum(dim=2).flatten(1), squared.sum(dim=3).flatten(1)), dim=1), dim=1)
