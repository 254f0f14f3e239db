import torch

from rcil.losses import UNNAMED, certain_labels, completed_cross_entropy, unbiased_cross_entropy

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
