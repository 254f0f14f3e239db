"""Initialisation of new classifier rows as combinations of old ones.

After NeST, "Early Preparation Pays Off: New Classifier Pre-tuning for Class Incremental Semantic Segmentation",
https://arxiv.org/abs/2407.14142
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rcil.losses.unbiased import unbiased_cross_entropy
from rcil.nn.network import ClassRows

LR = 0.1


class RowFit:
    """Fits new rows as combinations of old rows, batch by batch, with fixed features.

    Args:
        classifier: The student's classifier; the rows of its last step are fitted, and `finish` writes the result.
        sum_over_processes: Sums a tensor over the processes of a run.
    """

    def __init__(
        self, classifier: ClassRows, sum_over_processes: Callable[[Tensor], Tensor] = lambda value: value
    ) -> None:
        weight, bias = classifier.rows()
        self.new = len(classifier.steps[-1])
        self.old = len(weight) - self.new
        self.classifier = classifier
        self.weight, self.bias = weight.flatten(1), bias
        self.sum_over_processes = sum_over_processes
        self.combination = nn.Parameter(weight.new_zeros(self.new, self.old))
        self.shift = nn.Parameter(weight.new_zeros(self.new))
        self.optimiser = torch.optim.Adam([self.combination, self.shift], lr=LR)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Current kernels [new, C] and biases [new]."""
        weight = self.weight[self.old :] + self.combination @ self.weight[: self.old]
        return weight, self.bias[self.old :] + self.shift

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        """One step on classifier features [N, C, h, w] and labels [N, H, W]; returns the loss, detached."""
        with torch.enable_grad():
            weight, bias = self.rows()
            all_rows = torch.cat((self.weight[: self.old], weight))[:, :, None, None]
            logits = F.conv2d(features, all_rows, torch.cat((self.bias[: self.old], bias)))
            logits = F.interpolate(logits, size=labels.shape[1:], mode="bilinear", align_corners=False)
            loss = unbiased_cross_entropy(logits, labels, self.old)
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        for parameter in (self.combination, self.shift):
            assert parameter.grad is not None
            parameter.grad = self.sum_over_processes(parameter.grad)
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def finish(self) -> None:
        """Write the rows into the classifier."""
        weight, bias = self.rows()
        kernel = torch.cat((self.weight[: self.old], weight))[:, :, None, None]
        self.classifier.set_rows(kernel, torch.cat((self.bias[: self.old], bias)))
