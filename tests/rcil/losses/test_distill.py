from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.losses import encoder_mse, knowledge_distillation

OPTIONS = {"kd_none_then_mean": {}, "kd_mean": {"reduction": "mean"}, "kd_mean_alpha2": {"alpha": 2.0}}


@pytest.mark.parametrize("case", ["16_1", "16_5"])
@pytest.mark.parametrize("name", OPTIONS)
def test_official_distillation(golden: Any, case: str, name: str, dtype: torch.dtype) -> None:
    student, teacher = golden.leaf(f"logit.{case}.student", dtype), golden.tensor(f"logit.{case}.teacher", dtype)
    loss = knowledge_distillation(student, teacher, **OPTIONS[name])
    golden.check_value(loss, golden.json["logit_losses"][case][name])
    loss.backward()
    golden.check_array(student.grad, f"logit.{case}.{name}.grad")
    if f"logit.{case}.{name}.map" in golden:
        golden.check_array(knowledge_distillation(student, teacher, reduction="none"), f"logit.{case}.{name}.map")


def test_distillation_by_hand() -> None:
    student = torch.tensor([1.0, 3.0, 100.0]).log().view(1, 3, 1, 1)  # the new class does not take part
    teacher = torch.zeros(1, 2, 1, 1)
    loss = knowledge_distillation(student, teacher)
    assert loss.item() == pytest.approx(-(0.5 * math.log(1 / 4) + 0.5 * math.log(3 / 4)) / 2, rel=1e-6)


def test_mask_keeps_pixels() -> None:
    student, teacher = torch.randn(1, 3, 1, 2), torch.randn(1, 2, 1, 2)
    keep = torch.tensor([[[True, False]]])
    kept = knowledge_distillation(student[..., :1], teacher[..., :1]).item()
    assert knowledge_distillation(student, teacher, mask=keep).item() == pytest.approx(kept / 2, rel=1e-6)
    loss = knowledge_distillation(student, teacher, mask=keep, reduction="mean")
    assert loss.item() == pytest.approx(kept, rel=1e-6)


def test_encoder_mse_by_hand() -> None:
    new = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1).requires_grad_()
    loss = encoder_mse(new, torch.tensor([0.0, 5.0]).view(1, 2, 1, 1))
    loss.backward()
    assert loss.item() == pytest.approx((1 + 9) / 2)
    assert new.grad.flatten().tolist() == [1, -3]


def test_shapes_that_do_not_match_are_refused() -> None:
    with pytest.raises(ConfigError):
        knowledge_distillation(torch.zeros(1, 2, 1, 1), torch.zeros(1, 3, 1, 1))
    with pytest.raises(ConfigError, match="shape"):
        encoder_mse(torch.zeros(1, 2, 1, 1), torch.zeros(1, 2, 2, 1))
    with pytest.raises(ConfigError, match="shape"):  # features are not logits: nothing to fold
        encoder_mse(torch.zeros(1, 3, 1, 1), torch.zeros(1, 2, 1, 1))
