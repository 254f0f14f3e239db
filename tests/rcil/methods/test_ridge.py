"""Recursive ridge regression: one pass per step ends where one fit to all steps does."""

from dataclasses import replace

import pytest
import torch
from networks import at_step, small_arch
from torch.nn import functional as F

from rcil.core.errors import TrainingError
from rcil.methods import StepInfo, make_method
from rcil.methods.pixels import Pixels, sample_pixels
from rcil.methods.refit import importance_of
from rcil.methods.replay import drift, measure_features
from rcil.methods.ridge import RIDGE, SCALES, Sums, best_scale, set_ridge_rows, updated
from rcil.nn import fold

WIDTH, CLASSES = 5, 4


def drawn(rows, seed, count=600, classes=CLASSES):
    """Pixels of some classes, each around its own mean."""
    generator = torch.Generator().manual_seed(7)
    means = 3 * torch.randn(CLASSES, WIDTH, generator=generator, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(rows)[torch.randint(0, len(rows), (count,), generator=generator)]
    features = means[labels] + torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)
    return Pixels(features, F.one_hot(labels, classes).double())


def remembered(pixels, sums, known=None):
    """Statistics of features with the sums, as a checkpoint has them."""
    return measure_features(pixels, known).model_copy(update={"ridge": sums.stored()})


def with_ones(pixels):
    return torch.cat((pixels.features, torch.ones(len(pixels.features), 1)), dim=1)


def test_the_recursion_written_out():
    """R <- (R^-1 + X'AX)^-1 and W <- W + R X'A (Y - X W), with an inverse in each step."""
    steps = [drawn([0, 1], 0, classes=2), drawn([0, 2], 1, classes=3), drawn([0, 1, 3], 2)]
    x = with_ones(steps[0])
    variance = x.var(dim=0, correction=0)
    inverse = torch.linalg.inv((RIDGE * len(x) * (variance + 1e-4 * variance.mean())).diag())
    rows, known = torch.zeros(WIDTH + 1, 0, dtype=torch.float64), None
    for pixels in steps:
        x, y = with_ones(pixels), pixels.targets
        weights = importance_of(y).diag()
        rows = F.pad(rows, (0, y.shape[1] - rows.shape[1]))
        inverse = torch.linalg.inv(torch.linalg.inv(inverse) + x.T @ weights @ x)
        rows = rows + inverse @ x.T @ weights @ (y - x @ rows)
        sums = updated(pixels, known)
        torch.testing.assert_close(sums.rows(), rows, rtol=1e-6, atol=1e-8)
        known = remembered(pixels, sums, known)


def test_steps_end_where_one_fit_to_all_pixels_does():
    first, second = drawn([0, 1, 2], 0), drawn([0, 3], 1)
    found = updated(second, remembered(first, updated(first, None))).rows()
    x = torch.cat((with_ones(first), with_ones(second)))
    y = torch.cat((first.targets, second.targets))
    a = torch.cat((importance_of(first.targets), importance_of(second.targets))).sqrt()[:, None]
    ridge = Sums.start(with_ones(first), CLASSES).products.diagonal().sqrt().diag()
    rows = torch.linalg.lstsq(torch.cat((a * x, ridge)), torch.cat((a * y, torch.zeros(WIDTH + 1, CLASSES)))).solution
    torch.testing.assert_close(found, rows, rtol=1e-6, atol=1e-8)
    everything = drawn([0, 1, 2, 3], 5)
    right = (with_ones(everything) @ found).argmax(dim=1) == everything.targets.argmax(dim=1)
    alone = (with_ones(everything) @ updated(second, None).rows()).argmax(dim=1) == everything.targets.argmax(dim=1)
    assert right.double().mean() > 0.9 and alone.double().mean() < 0.6


def test_sums_move_with_the_features():
    """A linear change of the features, which the second step's pixels show, changes the sums like the features."""
    first, second = drawn([0, 1, 2], 0), drawn([0, 1, 2, 3], 1)
    change = torch.eye(WIDTH) + 0.3 * torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3))
    change = change.double()
    seen = Pixels(second.features @ change, second.targets, second.features)
    known = remembered(first, updated(first, None))
    found = drift(seen)(torch.eye(WIDTH, dtype=torch.float64))
    assert (found - change).norm() < 0.2 * (change - torch.eye(WIDTH)).norm()
    start = Sums.start(with_ones(first), CLASSES)
    along = torch.block_diag(found, torch.ones(1, 1))
    x, a = with_ones(first) @ along, importance_of(first.targets)
    expected = Sums(along.T @ start.products @ along, along.T @ start.targets).plus(x, first.targets, a)
    expected = expected.plus(with_ones(seen), seen.targets, importance_of(seen.targets))
    got = updated(seen, known)
    torch.testing.assert_close(got.products, expected.products)
    torch.testing.assert_close(got.targets, expected.targets)


def test_what_belongs_to_other_features_is_not_used():
    first, second = drawn([0, 1, 2], 0), drawn([0, 3], 1)
    known = remembered(first, updated(first, None))
    narrower = replace(second, features=second.features[:, :-1])
    fewer = replace(second, targets=second.targets[:, :2])
    for pixels in (narrower, fewer):
        torch.testing.assert_close(updated(pixels, known).rows(), updated(pixels, None).rows())
    assert not torch.allclose(updated(second, known).rows(), updated(second, None).rows())


def test_a_constant_feature_and_no_bias():
    pixels = drawn([0, 1, 2, 3], 0)
    constant = replace(pixels, features=torch.cat((pixels.features, torch.full((600, 1), 2.0)), dim=1))
    wide = torch.cat((constant.features, torch.ones(600, 1)), dim=1)
    torch.testing.assert_close(
        wide @ updated(constant, None).rows(), with_ones(pixels) @ updated(pixels, None).rows(), rtol=1e-3, atol=1e-4
    )
    rows = updated(pixels, None, has_bias=False).rows()
    assert not rows[-1].any() and rows[:-1].any()


def test_the_scale_has_the_smallest_cross_entropy():
    pixels = drawn([0, 1, 2, 3], 0)
    scores = with_ones(pixels) @ updated(pixels, None).rows()
    importance = importance_of(pixels.targets)
    losses = {
        s: float((F.cross_entropy(s * scores, pixels.targets, reduction="none") * importance).mean()) for s in SCALES
    }
    assert 1 < best_scale(scores, pixels.targets) == min(losses, key=losses.get) < max(SCALES)


def test_rows_of_a_network():
    """They name what least squares name, with probabilities that fit; without pixels nothing happens."""
    model = at_step(small_arch(), 0).eval()
    images = [(torch.randn(1, 3, 49, 49), torch.randint(0, 3, (1, 49, 49))) for _ in range(2)]
    pixels = sample_pixels(model, None, images)
    stored = set_ridge_rows(model, pixels, None)
    weight, bias = model.rows.rows()
    logits = pixels.features @ weight.flatten(1).T + bias
    rows = updated(pixels, None).rows().float()
    scores = pixels.features @ rows[:-1] + rows[-1]
    torch.testing.assert_close(logits, scores * best_scale(scores, pixels.targets), rtol=1e-4, atol=1e-4)
    kept, expected = Sums.of(stored, pixels.features.double()), updated(pixels, None)
    torch.testing.assert_close((kept.products, kept.targets), (expected.products, expected.targets))
    assert set_ridge_rows(model, Pixels(pixels.features[:0], pixels.targets[:0]), None) is None
    assert torch.equal(model.rows.rows()[0], weight)
    with pytest.raises(TrainingError, match="have diverged"):
        set_ridge_rows(model, Pixels(pixels.features * float("inf"), pixels.targets), None)


def test_a_method_hands_its_sums_on():
    """After step 0 and a later one; the fit before the later one does not count its pixels."""
    teacher = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = [(torch.randn(1, 3, 49, 49), torch.randint(0, 3, (1, 49, 49))) for _ in range(2)]
    method = make_method("rcil-plus", refit="ridge", balance="none")
    method.finish(teacher, None, None, StepInfo(0, 3), images)
    first = method.measured.ridge
    expected = updated(sample_pixels(teacher, None, images), None)
    assert first == expected.stored()
    method.known = method.measured
    later = [(image, labels.where(labels == 0, 3)) for image, labels in images]
    student, info, folded = method.begin(teacher, ["new"]), StepInfo(3, 1), fold(teacher)[0]
    method.start(student, folded, info, later)
    fused = method.finish(student, teacher, folded, info, later)
    pixels = sample_pixels(fused, folded, later, with_old=True)
    assert pixels.old_features is not None and not torch.equal(pixels.old_features, pixels.features)
    sums = updated(pixels, method.known)
    torch.testing.assert_close(Sums.of(method.measured.ridge, sums.products).products, sums.products)
    rows = sums.rows().float()
    weight = fused.rows.rows()[0].flatten(1).T
    torch.testing.assert_close(weight / weight.norm(), rows[:-1] / rows[:-1].norm(), rtol=1e-3, atol=1e-4)


def test_a_domain_step_uses_its_labels_and_the_old_features():
    teacher = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = [(torch.randn(1, 3, 49, 49), torch.randint(0, 3, (1, 49, 49))) for _ in range(2)]
    method = make_method("rcil-plus", refit="ridge")
    method.finish(teacher, None, None, StepInfo(0, 3), images)
    method.known = method.measured
    student, folded = method.begin(teacher, []), fold(teacher)[0]
    fused = method.finish(student, teacher, folded, StepInfo(3, 0), images)
    pixels = sample_pixels(fused, folded, images, with_old=True, teaches=False)
    assert torch.equal(pixels.targets, sample_pixels(fused, None, images).targets)
    sums = updated(pixels, method.known)
    torch.testing.assert_close(Sums.of(method.measured.ridge, sums.products).products, sums.products)
