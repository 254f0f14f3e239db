import math

import torch

from rcil.losses import (
    UNNAMED,
    certain_labels,
    completed_cross_entropy,
    reliability,
    taught_cross_entropy,
    unbiased_cross_entropy,
)

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(2, 5, 6, 7, dtype=torch.float64, generator=GENERATOR)


def test_without_old_names_it_is_the_unbiased_one():
    labels = torch.tensor([0, 3, 4, 255])[torch.randint(0, 4, (2, 6, 7), generator=GENERATOR)]
    unnamed = labels.where(labels != 0, UNNAMED)
    torch.testing.assert_close(completed_cross_entropy(LOGITS, unnamed, 3), unbiased_cross_entropy(LOGITS, labels, 3))


def test_named_pixels_have_plain_cross_entropy():
    labels = torch.randint(0, 5, (2, 6, 7), generator=GENERATOR)
    expected = torch.nn.functional.cross_entropy(LOGITS, labels)
    torch.testing.assert_close(completed_cross_entropy(LOGITS, labels, 3), expected)
    ignored = labels.clone()
    ignored[0] = 255
    half = torch.nn.functional.cross_entropy(LOGITS[1:], labels[1:]) / 2
    torch.testing.assert_close(completed_cross_entropy(LOGITS, ignored, 3), half)


def test_only_sure_background_is_named():
    """Pixel by pixel: sure of class 2, sure of background, unsure, labelled new, named by a memory, ignored."""
    sure, empty, unsure = torch.tensor([[-9.0, -9.0, 9.0], [9.0, -9.0, -9.0], [0.1, 0.0, 0.2]])
    old = torch.stack([sure, empty, unsure, sure, sure, sure], dim=1).view(1, 3, 1, 6)
    labels = torch.tensor([[[0, 0, 0, 3, 1, 255]]])
    named = certain_labels(old, labels, torch.full((4,), 0.01))
    assert named.tolist() == [[[2, 0, UNNAMED, 3, 1, 255]]]


def test_taught_background_has_the_old_probabilities_and_named_pixels_their_label():
    """By hand, pixel by pixel: taught, labelled new, named by a memory, ignored."""
    old = torch.tensor([[0.5, 0.3, 0.2]] * 4, dtype=torch.float64).log().T.view(1, 3, 1, 4)
    student = torch.tensor([[0.4, 0.3, 0.2, 0.1]] * 4, dtype=torch.float64).log().T.view(1, 4, 1, 4)
    labels = torch.tensor([[[0, 3, 1, 255]]])
    taught = -(0.5 * math.log(0.4) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2))
    expected = [taught, -math.log(0.1), -math.log(0.3), 0.0]
    found = taught_cross_entropy(student, labels, old, reduction="none")
    torch.testing.assert_close(found.flatten(), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(taught_cross_entropy(student, labels.byte(), old).item(), sum(expected) / 4)


def test_reliability_is_what_the_entropy_leaves():
    """By hand: certain, even, and three quarters of one of four classes; a single class is certain."""
    rows = torch.tensor([[1, 0, 0, 0], [0.25] * 4, [0.75, 0.25, 0, 0]], dtype=torch.float64)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    expected = torch.tensor([1.0, 0.0, 1 - entropy / math.log(4)], dtype=torch.float64)
    torch.testing.assert_close(reliability(rows.T.view(1, 4, 1, 3)).flatten(), expected)
    assert reliability(torch.ones(1, 1, 2, 2)).tolist() == [[[1, 1], [1, 1]]]


def test_background_counts_as_much_as_it_is_reliable():
    """Pixel by pixel: reliable background, unreliable background, labelled new, ignored."""
    sure, unsure = [0.9, 0.1, 0.0], [0.4, 0.3, 0.3]
    old = torch.tensor([sure, unsure, unsure, sure], dtype=torch.float64).clamp(min=1e-30).log().T.view(1, 3, 1, 4)
    student = torch.tensor([[0.4, 0.3, 0.2, 0.1]] * 4, dtype=torch.float64).log().T.view(1, 4, 1, 4)
    labels = torch.tensor([[[0, 0, 3, 255]]])
    trusts = [1 + sum(p * math.log(p) for p in row if p) / math.log(3) for row in (sure, unsure)]
    assert trusts[1] < 0.05 < 0.5 < trusts[0]
    taught = [-sum(p * math.log(s) for p, s in zip(row, (0.4, 0.3, 0.2), strict=True)) for row in (sure, unsure)]
    for least, second in ((0.0, trusts[1] * taught[1]), (0.5, 0.0)):
        expected = [trusts[0] * taught[0], second, -math.log(0.1), 0.0]
        found = taught_cross_entropy(student, labels, old, reliable=least, reduction="none")
        torch.testing.assert_close(found.flatten(), torch.tensor(expected, dtype=torch.float64))
        mean = taught_cross_entropy(student, labels, old, reliable=least)
        torch.testing.assert_close(mean.item(), sum(expected) / 4)


def test_taught_labels_are_at_rest_where_student_and_teacher_agree():
    logits = LOGITS.clone().requires_grad_()
    with torch.no_grad():
        logits[:, 3:] = -200
    taught_cross_entropy(logits, torch.zeros(2, 6, 7, dtype=torch.long), logits[:, :3].detach()).backward()
    assert logits.grad.abs().max() < 1e-15
