"""Rows that are fitted to images without old classes keep them, because their features are drawn."""

import pytest
import torch
from networks import at_step, small_arch

from rcil.methods import StepInfo, make_method
from rcil.methods.pixels import Pixels, sample_pixels
from rcil.methods.refit import REPLAY_PULL, fitted_rows
from rcil.methods.replay import DRAWN, DRAWN_BACKGROUND, MAX_DRAWN, MIN_PIXELS, drift, measure_features, with_drawn
from rcil.model.features import FeatureStatistics

WIDTH = 6


def clusters(rows, pixels=4000, classes=4, seed=0):
    """Features of some classes: correlated within each, apart from the others, and never negative."""
    generator = torch.Generator().manual_seed(7)
    centres = 4 + 3 * torch.randn(classes, WIDTH, generator=generator)
    mixing = torch.randn(WIDTH, WIDTH, generator=generator) / 3
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(rows)[torch.randint(0, len(rows), (pixels,), generator=generator)]
    features = (centres[labels] + torch.randn(pixels, WIDTH, generator=generator) @ mixing).clamp(min=0)
    return Pixels(features, torch.nn.functional.one_hot(labels, classes).float())


def correct(pixels, weight, bias, row):
    """Share of the pixels of a class that get this class."""
    labels = pixels.targets.argmax(dim=1)
    found = (pixels.features @ weight.flatten(1).T + bias).argmax(dim=1)
    return float((found == row)[labels == row].float().mean())


def test_statistics_are_those_of_each_class():
    pixels = clusters([0, 1, 2])
    means, deviations, correlation = (torch.from_numpy(a) for a in measure_features(pixels).arrays())
    labels = pixels.targets.argmax(dim=1)
    for row in range(3):
        torch.testing.assert_close(means[row], pixels.features[labels == row].mean(dim=0), rtol=2e-3, atol=1e-3)
        torch.testing.assert_close(deviations[row], pixels.features[labels == row].std(dim=0), rtol=5e-3, atol=3e-3)
    expected = torch.stack([torch.corrcoef(pixels.features[labels == row].T) for row in (1, 2)]).mean(dim=0)
    torch.testing.assert_close(correlation, expected, rtol=0, atol=5e-3)
    assert measure_features(pixels).counts == (*torch.bincount(labels, minlength=3).tolist(), 0)


def test_drawn_features_look_like_the_real_ones():
    real, few = clusters([0, 1, 2], pixels=9000), clusters([3])
    drawn = with_drawn(few, measure_features(real))
    assert torch.equal(drawn.features[: len(few.features)], few.features)
    labels = drawn.targets.argmax(dim=1)[len(few.features) :]
    assert torch.bincount(labels).tolist() == [DRAWN_BACKGROUND, DRAWN, DRAWN]
    for row in (1, 2):
        there = drawn.features[len(few.features) :][labels == row]
        here = real.features[real.targets.argmax(dim=1) == row]
        torch.testing.assert_close(there.mean(dim=0), here.mean(dim=0), rtol=0, atol=0.1)
        torch.testing.assert_close(torch.cov(there.T), torch.cov(here.T), rtol=0, atol=0.15)
    assert torch.equal(with_drawn(few, measure_features(real)).features, drawn.features), "the same in every process"


def test_a_class_that_the_images_do_not_show_survives_the_fit():
    """Without its features the row of class 2, which resembles class 3, is turned against both."""
    everything = clusters([0, 1, 2, 3], pixels=20000, seed=1)
    weight, bias = fitted_rows(clusters([0, 1, 2]), torch.zeros(4, WIDTH, 1, 1), torch.zeros(4))
    before = correct(everything, weight, bias, 2)
    step = clusters([0, 3])
    alone = fitted_rows(step, weight, bias)
    replayed = fitted_rows(with_drawn(step, measure_features(clusters([0, 1, 2]))), weight, bias, pull=REPLAY_PULL)
    for row in (1, 2):
        assert correct(everything, *replayed, row) > correct(everything, weight, bias, row) - 0.05
    assert correct(everything, *replayed, 3) > 0.8
    assert min(correct(everything, *alone, row) for row in (1, 2)) < before - 0.3


def test_statistics_move_with_the_features():
    before = clusters([0, 1, 2])
    change = torch.eye(WIDTH) + 0.3 * torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3))
    step = clusters([0, 3], seed=5)
    seen = Pixels(step.features @ change, step.targets, step.features)
    moved = drift(seen)(before.features)
    truth = before.features @ change
    assert (moved - truth).norm() < 0.5 * (before.features - truth).norm()
    kept = measure_features(seen, measure_features(before), keep=3)
    means, *_ = (torch.from_numpy(a) for a in kept.arrays())
    old_means, *_ = (torch.from_numpy(a) for a in measure_features(before).arrays())
    torch.testing.assert_close(means[:3], drift(seen)(old_means[:3]), rtol=2e-3, atol=2e-3)
    assert kept.counts[:3] == measure_features(before).counts[:3] and kept.counts[3] > MIN_PIXELS
    assert measure_features(clusters([0, 1, 2]), None, keep=2).counts[:2] == (0, 0), "what is seen may be mistakes"


def test_what_is_known_fills_in_for_classes_that_are_hardly_seen():
    known = measure_features(clusters([0, 1, 2]))
    now = measure_features(clusters([0, 1, 3], seed=9), known)
    assert now.counts[2] == known.counts[2] and now.counts[1] != known.counts[1]
    assert measure_features(clusters([0, 1, 3])).counts[2] == 0


def test_nothing_is_drawn_of_other_features():
    """Statistics of another network, or none at all, leave the pixels as they are."""
    step = clusters([0, 3])
    wider = FeatureStatistics.of([9], *(torch.zeros(n, WIDTH + 1).numpy() for n in (1, 1, WIDTH + 1)))
    unknown = FeatureStatistics.of([0, 0], *(torch.zeros(n, WIDTH).numpy() for n in (2, 2, WIDTH)))
    assert with_drawn(step, wider) is step and with_drawn(step, unknown) is step


def test_a_correlation_that_is_none_is_no_traceback():
    """Rounding gives eigenvalues a little below 0, and a damaged file any."""
    odd = torch.ones(WIDTH, WIDTH).fill_diagonal_(0)
    values = (torch.ones(2, WIDTH).numpy(), torch.ones(2, WIDTH).numpy(), odd.numpy())
    assert torch.isfinite(with_drawn(clusters([0, 3]), FeatureStatistics.of([9, 9], *values)).features).all()


def test_many_classes_do_not_exhaust_the_memory():
    values = (torch.ones(200, 3).numpy(), torch.ones(200, 3).numpy(), torch.eye(3).numpy())
    step = Pixels(torch.zeros(5, 3), torch.nn.functional.one_hot(torch.full((5,), 200), 201).float())
    drawn = with_drawn(step, FeatureStatistics.of([9] * 200, *values))
    assert len(drawn.features) == pytest.approx(MAX_DRAWN, rel=0.01)


def test_the_teachers_features_are_sampled_at_the_same_pixels():
    teacher = at_step(small_arch(), 0).eval()
    images = [(torch.randn(1, 3, 33, 33), torch.randint(0, 3, (1, 33, 33)))]
    pixels = sample_pixels(teacher, teacher, images, with_old=True)
    torch.testing.assert_close(pixels.old_features, pixels.features)
    assert sample_pixels(teacher, teacher, images).old_features is None


def test_a_careful_step_keeps_norms_and_old_rows():
    method = make_method("rcil-plus", replay=True, late=True)
    student = method.begin(at_step(small_arch(), 0), ["new"])
    method.set_training(student)
    norms = [m for m in student.modules() if getattr(m, "running_mean", None) is not None]
    assert norms and student.training and not any(m.training for m in norms)
    takes = {name: p.requires_grad for name, p in student.named_parameters() if name.startswith("classifier")}
    assert set(takes.values()) == {True, False}
    method.set_training(at_step(small_arch(), 0))  # step 0 has no old rows


def test_a_step_measures_the_features_of_its_network():
    method = make_method("rcil-plus", replay=True, late=True, fuse=False)
    teacher = at_step(small_arch(), 0).eval()
    images = [(torch.randn(1, 3, 49, 49), torch.randint(0, 4, (1, 49, 49))) for _ in range(2)]
    width = len(teacher.rows.rows()[0][0])
    values = (torch.ones(3, width).numpy(), torch.ones(3, width).numpy(), torch.eye(width).numpy())
    method.known = FeatureStatistics.of([9, 9, 9], *values)
    method.finish(method.begin(teacher, ["new"]), teacher, teacher, StepInfo(3, 1), images)
    assert method.measured is not None and method.measured.counts[:3] == (9, 9, 9)
    assert method.measured.counts[3] > MIN_PIXELS
