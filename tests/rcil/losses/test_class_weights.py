"""Class weights by hand."""

import math

import numpy as np
import pytest
import torch

from rcil.losses import completed_cross_entropy, taught_cross_entropy, unbiased_cross_entropy
from rcil.losses.class_weights import class_weights, weigh_pixels
from rcil.methods.fine_tuning import cross_entropy

PIXELS = np.array([[60, 20, 0], [80, 0, 40]])
"""Two images with 80 and 120 pixels; shares 0.7, 0.1, 0.2 of all."""


def test_none_weighs_nothing():
    assert class_weights("none", PIXELS) is None
    assert class_weights("enet", np.zeros((2, 3), int)) is None


def test_enets_formula():
    raw = [1 / math.log(1.02 + share) for share in (0.7, 0.1, 0.2)]
    mean = 0.7 * raw[0] + 0.1 * raw[1] + 0.2 * raw[2]
    assert class_weights("enet", PIXELS) == pytest.approx([value / mean for value in raw])


def test_median_frequency():
    """Shares in the images that contain the class: 140 / 200, 20 / 80, 40 / 120; their median is 1/3."""
    raw = [(1 / 3) / 0.7, (1 / 3) / 0.25, 1.0]
    mean = 0.7 * raw[0] + 0.1 * raw[1] + 0.2 * raw[2]
    assert class_weights("median_frequency", PIXELS) == pytest.approx([value / mean for value in raw])


def test_root_frequency():
    raw = [math.sqrt(value) for value in ((1 / 3) / 0.7, (1 / 3) / 0.25, 1.0)]
    mean = 0.7 * raw[0] + 0.1 * raw[1] + 0.2 * raw[2]
    assert class_weights("root_frequency", PIXELS) == pytest.approx([value / mean for value in raw])


@pytest.mark.parametrize("kind", ["enet", "median_frequency", "root_frequency"])
def test_a_class_that_does_not_occur_has_the_weight_1(kind):
    weights = class_weights(kind, np.array([[50, 0, 50]]))
    assert weights == pytest.approx((1.0, 1.0, 1.0))


def test_pixels_are_weighed_by_their_label():
    labels = torch.tensor([[[0, 1], [255, -1]]])
    weighed = weigh_pixels(torch.full((1, 2, 2), 2.0), labels, torch.tensor([1.0, 3.0]))
    assert weighed[0, 0].tolist() == [2.0, 6.0]
    assert weighed[0, 1, 1] == 2.0, "an unnamed pixel has the weight of background"


@pytest.mark.parametrize("ignored", [False, True])
def test_every_loss_is_the_weighted_mean_of_its_pixels(ignored):
    torch.manual_seed(0)
    logits, old = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.randn(2, 2, 4, 5, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, 4, 5))
    new_only = labels.where(labels == 2, 0)
    if ignored:
        labels[:, 0], new_only[:, 0] = 255, 255
    weights = torch.tensor([0.5, 2.0, 4.0], dtype=torch.float64)

    def by_hand(loss, labels):
        rows = [weights[c] if c != 255 else 0.0 for c in labels.flatten().tolist()]
        return (loss.flatten() * torch.tensor(rows, dtype=torch.float64)).mean()

    plain = torch.nn.functional.cross_entropy(logits, labels, ignore_index=255, reduction="none")
    assert cross_entropy(logits, labels, weights).item() == pytest.approx(by_hand(plain, labels).item())
    for loss, extra in ((unbiased_cross_entropy, 2), (completed_cross_entropy, 2), (taught_cross_entropy, old)):
        pixels = loss(logits, new_only, extra, reduction="none")
        weighted = loss(logits, new_only, extra, weights=weights)
        assert weighted.item() == pytest.approx(by_hand(pixels, new_only).item())
