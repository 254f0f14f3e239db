import pytest
import torch
from networks import at_step, small_arch

from rcil.core.errors import TrainingError
from rcil.methods import StepInfo, make_method
from rcil.methods.biases import balance_biases
from rcil.methods.pixels import Pixels, sample_pixels
from rcil.methods.refit import PULL, fitted_rows, refit_classifier
from rcil.nn import begin_step, fold


def separable(pixels=3000, classes=3, width=8):
    """Features whose class is that of the largest of a few random directions, targets, and rows that know nothing."""
    torch.manual_seed(0)
    features = torch.randn(pixels, width) * torch.linspace(0.1, 5, width) + 3  # of quite different sizes
    scores = (features - 3) @ torch.randn(width, classes)
    targets = torch.nn.functional.one_hot(scores.argmax(dim=1), classes).float()
    return Pixels(features, targets), torch.zeros(classes, width, 1, 1), torch.zeros(classes)


def answers(pixels, weight, bias):
    return (pixels.features @ weight.flatten(1).T + bias).argmax(dim=1)


def test_rows_that_know_nothing_learn_all_that_features_tell():
    pixels, weight, bias = separable()
    fitted = fitted_rows(pixels, weight, bias)
    assert (answers(pixels, *fitted) == pixels.targets.argmax(dim=1)).float().mean() > 0.97
    assert fitted[0].shape == weight.shape and fitted[1].shape == bias.shape


def test_diverged_features_are_an_error_with_a_remedy():
    """As a network leaves them that has diverged: finite, but their mean is not."""
    pixels, weight, bias = separable(pixels=50)
    with pytest.raises(TrainingError, match="have diverged"):
        fitted_rows(Pixels(pixels.features * 1e37, pixels.targets), weight + 2e4, bias)


def test_the_fit_is_a_minimum():
    """The gradient of the balanced cross entropy with its pull, written out again, vanishes there."""
    pixels, weight, bias = separable(pixels=500)
    weight = weight + 0.1
    kernel, shift = (value.double() for value in fitted_rows(pixels, weight, bias))
    features, targets = pixels.features.double(), pixels.targets.double()
    rows = torch.cat((kernel.flatten(1), shift[:, None]), dim=1).requires_grad_()
    share = targets.mean(dim=0)
    importance = targets @ share**-0.5 / (targets @ share**-0.5).mean()
    log_probabilities = (features @ rows[:, :-1].T + rows[:, -1]).log_softmax(dim=1)
    moved = (rows[:, :-1] - weight.flatten(1)) * features.std(dim=0)
    loss = -(targets * log_probabilities).sum(dim=1).mul(importance).mean() + PULL * moved.square().sum()
    loss.backward()
    assert loss < 0.5
    assert rows.grad.abs().max() < 2e-3


def test_rare_classes_count_more_than_their_share():
    """Two overlapping classes, one a fiftieth of the other: plain cross entropy would never name the rare one."""
    torch.manual_seed(0)
    features = torch.cat((torch.randn(5000, 1), torch.randn(100, 1) + 1.5))
    targets = torch.nn.functional.one_hot((torch.arange(5100) >= 5000).long(), 2).float()
    found = answers(Pixels(features, targets), *fitted_rows(Pixels(features, targets), *separable(1, 2, 1)[1:]))
    plain = 100 / 5100 * torch.distributions.Normal(1.5, 1).log_prob(features[5000:]).exp()
    plain = plain > 5000 / 5100 * torch.distributions.Normal(0, 1).log_prob(features[5000:]).exp()
    assert 0.15 < found[5000:].float().mean() < 0.5
    assert plain.float().mean() < 0.05
    assert found[:5000].float().mean() < 0.05


def test_without_pixels_rows_stay():
    model = at_step(small_arch(), 0)
    ignored = torch.randn(1, 3, 33, 33), torch.full((1, 33, 33), 255)
    before = [value.clone() for value in model.classifier.rows()]
    pixels = sample_pixels(model, None, [ignored])
    refit_classifier(model, pixels)
    balance_biases(model, pixels, range(3))
    assert all(torch.equal(*pair) for pair in zip(before, model.classifier.rows(), strict=True))


@pytest.mark.parametrize("labelled", [False, True])
def test_spoiled_rows_come_back(labelled):
    """With features as they were, the old model's answers, or labels, are enough to find the rows again."""
    teacher = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = [torch.randn(1, 3, 65, 65) for _ in range(4)]
    with torch.no_grad():  # no class is everywhere
        teacher.classifier.groups[0].bias -= teacher(torch.cat(images)).mean(dim=(0, 2, 3))
        answers = [teacher(image).argmax(dim=1) for image in images]
    student = begin_step(teacher, ["new"], preserve=True).eval()
    with torch.no_grad():
        weight, bias = student.classifier.rows()
        student.classifier.set_rows(torch.randn_like(weight) * 0.1, bias.flip(0))
    labels = [answer if labelled else torch.zeros_like(answer) for answer in answers]
    pixels = sample_pixels(student, None if labelled else fold(teacher)[0], zip(images, labels, strict=True))
    refit_classifier(student, pixels)
    with torch.no_grad():
        agree = torch.cat(
            [student(image).argmax(dim=1) == answer for image, answer in zip(images, answers, strict=True)]
        )
    assert agree.float().mean() > 0.9


def test_joint_training_is_fitted_on_request(monkeypatch):
    calls = []
    monkeypatch.setattr("rcil.methods.fine_tuning.sample_pixels", lambda student, teacher, images: teacher)
    for name in ("refit_classifier", "balance_biases"):
        monkeypatch.setattr(
            f"rcil.methods.fine_tuning.{name}", lambda *arguments, name=name: calls.append((name, arguments[1]))
        )
    monkeypatch.setattr("rcil.methods.fine_tuning.measure_features", lambda pixels: "measured")
    model, info = at_step(small_arch(), 0), StepInfo(0, 3)
    assert make_method("joint").finish(model, None, None, info, []) is model
    assert calls == []
    assert make_method("joint", refit=True).finish(model, None, None, info, []) is model
    assert calls == [("refit_classifier", None), ("balance_biases", None)]
    assert make_method("joint").first_step == make_method("joint", refit=True).first_step
