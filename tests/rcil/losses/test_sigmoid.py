import pytest
import torch
from torch.nn import functional as F

from rcil.losses import sigmoid_step

GENERATOR = torch.Generator().manual_seed(0)
NEW = torch.randn(1, 4, 1, 3, dtype=torch.float64, generator=GENERATOR)
OLD = torch.randn(1, 3, 1, 3, dtype=torch.float64, generator=GENERATOR)


def bce(logits, target):
    return F.binary_cross_entropy_with_logits(logits, target, reduction="sum")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (3, lambda: bce(NEW, torch.tensor([0.0, 0, 0, 1]).view(1, 4, 1, 1).expand_as(NEW).double())),
        (2, lambda: bce(NEW, torch.tensor([0.0, 0, 1, 0]).view(1, 4, 1, 1).expand_as(NEW).double())),
        (0, lambda: bce(NEW[:, :3], OLD.sigmoid()) + bce(NEW[:, 3:], torch.zeros_like(NEW[:, 3:]))),
        (255, lambda: bce(NEW[:, :3], OLD.sigmoid())),
    ],
    ids=["new", "named", "background", "ignored"],
)
def test_who_teaches_which_class(label, expected):
    labels = torch.full((1, 1, 3), label)
    torch.testing.assert_close(sigmoid_step(NEW, labels, OLD), expected() / 3)
