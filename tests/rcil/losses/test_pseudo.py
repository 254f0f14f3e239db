from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.losses import EntropyHistogram, normalised_entropy, pseudo_labels


def histogram_of(counts: list[int], classes: int = 2) -> EntropyHistogram:
    """A histogram whose class 1 has the given counts."""
    histogram = EntropyHistogram(classes, bins=len(counts))
    histogram.counts[1] = torch.tensor(counts)
    return histogram


def fill(golden: Any) -> EntropyHistogram:
    histogram = EntropyHistogram(17)
    for logits, labels in zip(
        golden.tensor("plop.pseudo.old_logits"), golden.tensor("plop.pseudo.labels"), strict=True
    ):
        histogram.update(logits, labels)
    return histogram


# The official values


def test_official_entropy(golden: Any, dtype: torch.dtype) -> None:
    teacher = golden.tensor("logit.16_1.teacher", dtype)
    golden.check_array(normalised_entropy(teacher.softmax(dim=1)), "entropy.of_teacher_16_1")
    logits = golden.tensor("plop.pseudo.old_logits", dtype)[0]
    relative = normalised_entropy(logits.softmax(dim=1)) / golden.json["plop"]["pseudo"]["max_entropy"]
    golden.check_array(relative, "plop.pseudo.entropy_over_max_batch0")


def test_official_thresholds(golden: Any) -> None:
    histogram = fill(golden)
    assert histogram.max_entropy == pytest.approx(golden.json["plop"]["pseudo"]["max_entropy"], rel=1e-7)
    medians, thresholds = golden.tensor("plop.pseudo.medians_before_floor"), golden.tensor("plop.pseudo.thresholds")
    assert torch.allclose(histogram.medians(), medians, rtol=1e-6, atol=1e-8)
    assert torch.allclose(histogram.thresholds(), thresholds, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(histogram.medians("paper"), medians, rtol=1e-3)


def test_official_labels_and_loss(golden: Any, dtype: torch.dtype) -> None:
    expected = golden.json["plop"]["pseudo"]
    labels = golden.tensor("plop.pseudo.labels")[0]
    completed, factor = pseudo_labels(
        golden.tensor("plop.pseudo.old_logits", dtype)[0], labels, golden.tensor("plop.pseudo.thresholds")
    )
    assert torch.equal(completed, golden.tensor("plop.pseudo.labels_after_batch0"))
    assert factor.tolist() == pytest.approx(expected["adaptive_factor_batch0"], rel=1e-6)
    counts = expected["counts_batch0"]
    background = labels < expected["old_classes"]
    assert int(background.sum()) == counts["background_pixels"]
    assert int((background & (completed == 255)).sum()) == counts["set_to_ignore"]
    assert int((background & (completed != 255)).sum()) == counts["kept"]

    student = golden.leaf("plop.pseudo.student_logits_batch0", dtype)
    losses = F.cross_entropy(student, completed, ignore_index=255, reduction="none")
    loss = (factor.view(-1, 1, 1) * losses).mean()
    assert loss.item() == pytest.approx(expected["classification_loss_batch0"], rel=1e-6)
    loss.backward()
    golden.check_array(losses, "plop.pseudo.ce_map_batch0")
    golden.check_array(student.grad, "plop.pseudo.student_grad_batch0")


# By hand


def test_entropy_of_uniform_and_certain_predictions() -> None:
    uniform = torch.full((1, 4, 1, 1), 0.25)
    assert normalised_entropy(uniform).item() == pytest.approx(1 / 4, rel=1e-6)
    certain = torch.tensor([1.0, 0, 0, 0]).view(1, 4, 1, 1)
    assert normalised_entropy(certain).item() == pytest.approx(0, abs=1e-7)


def test_only_background_is_counted() -> None:
    histogram = EntropyHistogram(3, bins=10)
    logits = torch.tensor([[0.0, 9.0, 9.0, 9.0], [0.0, 0.0, 0.0, 0.0]]).view(1, 2, 1, 4)
    histogram.update(logits, torch.tensor([[[0, 0, 2, 255]]]))
    # Uniform over two classes: ln 2 / 2 / ln 2 / ln 3 = 0.455, in bin 4 of class 0 (ties go to the first class).
    assert histogram.counts.tolist() == [[1, 0, 0, 0, 1, 0, 0, 0, 0, 0], [0] * 10, [0] * 10]


def test_batches_add_up() -> None:
    logits, labels = torch.randn(4, 3, 5, 5), torch.randint(2, (4, 5, 5))
    one, two = EntropyHistogram(4), EntropyHistogram(4)
    one.update(logits, labels)
    two.update(logits[:1], labels[:1])
    two.update(logits[1:], labels[1:])
    assert torch.equal(one.counts, two.counts)
    assert one.counts.sum() == (labels == 0).sum()


@pytest.mark.parametrize(
    ("counts", "median"),
    [
        ([4, 0, 0, 0], 0.125),
        ([1, 1, 1, 1], 0.5),
        ([0, 0, 0, 2], 0.875),
        ([1, 0, 0, 1], 0.25),
        ([0, 1, 3, 0], 0.25 * (2 + 1 / 3)),
        ([0, 0, 0, 0], 0.0),
    ],
)
def test_paper_median_interpolates(counts: list[int], median: float) -> None:
    assert histogram_of(counts).medians("paper")[1].item() == pytest.approx(median)


def test_paper_median_is_the_median_up_to_a_bin() -> None:
    values = torch.rand(1001)
    counts = torch.histc(values, bins=100, min=0, max=1).long().tolist()
    assert abs(histogram_of(counts).medians("paper")[1].item() - values.median().item()) <= 0.01


@pytest.mark.parametrize(
    ("counts", "median"),
    [
        ([4, 0, 0, 0], 0.125),
        # half 4; the running sum is 0, 0, 1, 3 before bins 0..3, so bin 3 is reached with 3.
        ([0, 0, 0, 8], 0.75 + (4 - 3) / 8 / 4),
        # half 1; bin 0 holds it: 0 <= 1 <= 0 + 1.
        ([1, 0, 0, 1], 0.25),
        # half 3: bin 1 has 0..2, bin 2 has 1..5.
        ([0, 2, 4, 0], 0.5 + (3 - 1) / 4 / 4),
        ([0, 0, 0, 0], 0.0),
        # half 0.5; no bin fits, the running sum ends at 6 and the last bin is extrapolated.
        ([0, 0, 0, 1], 0.75 + (0.5 - 6) / 1 / 4),
        ([0, 0, 1, 0], -math.inf),
        # half 1 meets the running sum at the empty bin 2.
        ([0, 0, 0, 2], 0.5),
    ],
)
def test_official_median_by_hand(counts: list[int], median: float) -> None:
    assert histogram_of(counts).medians("official")[1].item() == pytest.approx(median)


@pytest.mark.parametrize("index", [29, 57, 58])
def test_official_median_reads_some_bins_one_too_low(index: int) -> None:
    """int(0.29 * 100) is 28: what is counted in bin 29 is never found there."""
    assert int(index / 100 * 100) == index - 1
    running = index * (index - 1) // 2
    counts = [0] * 100
    counts[index] = 2 * running + 2  # bin `index` alone holds the middle
    assert histogram_of(counts).medians("paper")[1].item() == pytest.approx((index + 0.5) / 100)
    assert histogram_of(counts).medians("official")[1].item() != pytest.approx((index + 0.5) / 100, abs=0.005)


def test_official_median_without_a_fitting_bin_is_never_nan() -> None:
    rng = torch.Generator().manual_seed(1)
    for _ in range(300):
        counts = torch.randint(0, 4, (100,), generator=rng) * (torch.rand(100, generator=rng) < 0.1)
        histogram = histogram_of((counts * 10 ** int(torch.randint(0, 5, (), generator=rng))).tolist())
        assert not histogram.medians("official").isnan().any()
        assert (histogram.thresholds("official") >= 0.001).all()


def test_labels_by_hand() -> None:
    # Pixels: certain old class 1, uncertain, certain but labelled new, ignored.
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [20.0, 0.1, 20.0, 20.0]]).view(1, 2, 1, 4)
    labels = torch.tensor([[[0, 0, 2, 255]]])
    completed, factor = pseudo_labels(logits, labels, torch.tensor([0.1, 0.1, 0.1]))
    assert completed.tolist() == [[[1, 255, 2, 255]]]
    assert factor.tolist() == pytest.approx([0.5], rel=1e-5)
    assert labels.tolist() == [[[0, 0, 2, 255]]]


def test_the_threshold_is_that_of_the_predicted_class() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(1, 2, 1, 2)
    completed, _ = pseudo_labels(logits, torch.zeros(1, 1, 2, dtype=torch.long), torch.tensor([9.0, 0.0, 9.0]))
    assert completed.tolist() == [[[0, 255]]]


def test_an_ignored_pixel_is_never_background() -> None:
    logits = torch.tensor([20.0, 0.0]).view(1, 2, 1, 1)
    completed, factor = pseudo_labels(logits, torch.tensor([[[-1]]]), torch.ones(3), ignore_index=-1)
    assert completed.item() == -1
    assert factor.item() == 0


def test_factor_has_a_floor_and_is_zero_without_background() -> None:
    logits, labels = torch.zeros(2, 2, 1, 1), torch.tensor([[[2]], [[0]]])
    completed, factor = pseudo_labels(logits, labels, torch.zeros(3))
    assert completed.flatten().tolist() == [2, 255]
    assert factor.tolist() == [0, 0]
    assert pseudo_labels(logits, labels, torch.zeros(3), min_factor=0.25)[1].tolist() == [0.25, 0.25]


def test_max_entropy_scales_the_comparison() -> None:
    logits, labels = torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1, dtype=torch.long)
    thresholds = torch.tensor([0.5, 0.5, 0.5])  # normalised entropy is 0.5; over log 3 it is 0.455
    assert pseudo_labels(logits, labels, thresholds)[0].item() == 0
    assert pseudo_labels(logits, labels, thresholds, max_entropy=0.9)[0].item() == 255


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 classes"):
        EntropyHistogram(1)
    with pytest.raises(ConfigError, match="Did you mean 'paper'"):
        EntropyHistogram(2).medians("papr")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="2 thresholds"):
        pseudo_labels(torch.zeros(1, 3, 1, 1), torch.zeros(1, 1, 1, dtype=torch.long), torch.zeros(2))


def test_default_scale_is_the_log_of_all_classes() -> None:
    assert EntropyHistogram(21).max_entropy == pytest.approx(math.log(21))
    assert EntropyHistogram(21, max_entropy=2.0).max_entropy == 2.0
