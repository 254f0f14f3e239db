from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.losses import Reduction, unbiased_cross_entropy, unbiased_distillation

if TYPE_CHECKING:
    from torch import Tensor

CE = {"unce_none_then_mean": {}, "unce_mean": {"reduction": "mean"}, "unce_none_masked_then_mean": {"mask": True}}
KD = {
    "unkd_none_then_mean": {},
    "unkd_mean": {"reduction": "mean"},
    "unkd_mean_alpha2": {"alpha": 2.0},
    "unkd_mean_masked": {"mask": True},
}


def arguments(golden: Any, case: str, options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "mask": golden.tensor(f"logit.{case}.mask")} if "mask" in options else options


@pytest.mark.parametrize("case", ["16_1", "16_5"])
@pytest.mark.parametrize("name", CE)
def test_official_cross_entropy(golden: Any, case: str, name: str, dtype: torch.dtype) -> None:
    student, labels = golden.leaf(f"logit.{case}.student", dtype), golden.tensor(f"logit.{case}.labels")
    options = arguments(golden, case, CE[name])
    loss = unbiased_cross_entropy(student, labels, 16, **options)
    golden.check_value(loss, golden.json["logit_losses"][case][name])
    loss.backward()
    golden.check_array(student.grad, f"logit.{case}.{name}.grad")
    if f"logit.{case}.{name}.map" in golden:
        unreduced = unbiased_cross_entropy(student, labels, 16, **options, reduction="none")
        golden.check_array(unreduced, f"logit.{case}.{name}.map")


@pytest.mark.parametrize("case", ["16_1", "16_5"])
@pytest.mark.parametrize("name", KD)
def test_official_distillation(golden: Any, case: str, name: str, dtype: torch.dtype) -> None:
    student, teacher = golden.leaf(f"logit.{case}.student", dtype), golden.tensor(f"logit.{case}.teacher", dtype)
    options = arguments(golden, case, KD[name])
    loss = unbiased_distillation(student, teacher, **options)
    golden.check_value(loss, golden.json["logit_losses"][case][name])
    loss.backward()
    golden.check_array(student.grad, f"logit.{case}.{name}.grad")
    if f"logit.{case}.{name}.map" in golden:
        golden.check_array(
            unbiased_distillation(student, teacher, **options, reduction="none"), f"logit.{case}.{name}.map"
        )


def pixel(*values: float) -> Tensor:
    return torch.tensor(values).log().view(1, -1, 1, 1)


def test_cross_entropy_by_hand() -> None:
    logits = pixel(1, 2, 5)  # probabilities 1/8, 2/8, 5/8; classes 0 and 1 are old
    for label, probability in ((0, 3 / 8), (1, 3 / 8), (2, 5 / 8)):
        loss = unbiased_cross_entropy(logits, torch.tensor([[[label]]]), 2)
        assert loss.item() == pytest.approx(-math.log(probability), rel=1e-6)


def test_distillation_by_hand() -> None:
    # The student's background and new class together have (1 + 5) / 8.
    loss = unbiased_distillation(pixel(1, 2, 5), pixel(1, 3))
    assert loss.item() == pytest.approx(-(0.25 * math.log(6 / 8) + 0.75 * math.log(2 / 8)) / 2, rel=1e-6)


def test_without_old_or_new_classes_they_are_the_plain_losses() -> None:
    logits, labels = torch.randn(2, 4, 3, 3), torch.randint(4, (2, 3, 3))
    assert unbiased_cross_entropy(logits, labels, 1).item() == pytest.approx(F.cross_entropy(logits, labels).item())
    assert unbiased_cross_entropy(logits, labels, 4).item() == pytest.approx(0, abs=1e-6)
    teacher = torch.randn(2, 4, 3, 3)
    expected = -(teacher.softmax(1) * logits.log_softmax(1)).mean().item()
    assert unbiased_distillation(logits, teacher).item() == pytest.approx(expected, rel=1e-6)


def test_means_differ_in_their_denominator() -> None:
    logits, labels = torch.randn(1, 3, 2, 2), torch.tensor([[[0, 2], [255, 255]]])
    every = unbiased_cross_entropy(logits, labels, 2)
    valid = unbiased_cross_entropy(logits, labels, 2, reduction="mean")
    assert valid.item() == pytest.approx(2 * every.item(), rel=1e-6)
    keep = labels != 255
    every = unbiased_distillation(logits, logits[:, :2], mask=keep)
    valid = unbiased_distillation(logits, logits[:, :2], mask=keep, reduction="mean")
    assert valid.item() == pytest.approx(2 * every.item(), rel=1e-6)


@pytest.mark.parametrize("ignore_index", [255, -1])
@pytest.mark.parametrize("reduction", ["mean_all", "mean"])
def test_all_ignored_gives_zero_and_a_graph(ignore_index: int, reduction: Reduction) -> None:
    logits = torch.randn(1, 3, 2, 2, requires_grad=True)
    labels = torch.full((1, 2, 2), ignore_index)
    loss = unbiased_cross_entropy(logits, labels, 2, ignore_index=ignore_index, reduction=reduction)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_byte_labels_are_accepted() -> None:
    logits, labels = torch.randn(1, 4, 2, 2), torch.tensor([[[0, 3], [2, 255]]])
    expected = unbiased_cross_entropy(logits, labels, 3).item()
    assert unbiased_cross_entropy(logits, labels.byte(), 3).item() == expected


def test_large_logits_stay_finite() -> None:
    logits = torch.tensor([1e4, -1e4, 0.0]).view(1, 3, 1, 1).requires_grad_()
    loss = unbiased_cross_entropy(logits, torch.tensor([[[2]]]), 2)
    loss.backward()
    assert loss.item() == pytest.approx(1e4)
    assert logits.grad.isfinite().all()


def test_impossible_arguments_are_refused() -> None:
    logits, labels = torch.randn(1, 3, 2, 2), torch.zeros(1, 2, 2, dtype=torch.long)
    with pytest.raises(ConfigError, match="4 old classes"):
        unbiased_cross_entropy(logits, labels, 4)
    with pytest.raises(ConfigError, match="3 old classes"):
        unbiased_distillation(logits[:, :2], logits)
    with pytest.raises(ConfigError, match="Did you mean 'mean'"):
        unbiased_cross_entropy(logits, labels, 2, reduction="meen")  # type: ignore[arg-type]
