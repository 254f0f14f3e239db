import pytest
import torch
from networks import at_step, small_arch

from rcil.methods import StepInfo, make_method
from rcil.methods.biases import balance_biases, best_shifts
from rcil.methods.pixels import sample_pixels
from rcil.nn import begin_step, fold


def spoiled(wrong, pixels=4000, classes=4):
    """Logits that name every target by a margin between 0.5 and 1.5, then `wrong` [C] added; and the targets."""
    torch.manual_seed(0)
    targets = torch.randint(0, classes, (pixels,))
    logits = torch.rand(pixels, classes) * 0.2
    logits[torch.arange(pixels), targets] += 1 + torch.rand(pixels) * 0.2
    return logits + torch.tensor(wrong), targets


def test_a_bias_that_hides_a_class_is_found():
    logits, targets = spoiled([0.0, 0.0, 0.0, -2.0])
    assert not (logits.argmax(1) == 3).any()
    shifts = best_shifts(logits, targets, [3])
    assert 1.25 <= shifts[3] <= 2.75
    assert torch.equal((logits + shifts).argmax(1), targets)
    assert torch.equal(shifts[:3], torch.zeros(3))


def test_rows_that_may_not_move_stay():
    logits, targets = spoiled([0.0, 3.0, 0.0, -2.0])
    shifts = best_shifts(logits, targets, [3])
    assert shifts[1] == 0
    both = best_shifts(logits, targets, [3, 1])
    assert both[1] < -1
    assert torch.equal((logits + both).argmax(1), targets)


def test_good_logits_stay_as_they_are():
    logits, targets = spoiled([0.0, 0.0, 0.0, 0.0])
    assert torch.equal(best_shifts(logits, targets, range(4)), torch.zeros(4))


def test_what_labels_call_background_is_what_the_teacher_says():
    """With nothing labelled the student goes back to the sizes that the teacher gives its classes."""
    teacher = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = torch.randn(1, 3, 65, 65)
    with torch.no_grad():  # no class is everywhere
        teacher.classifier.groups[0].bias -= teacher(images).mean(dim=(0, 2, 3))
    student = begin_step(teacher, ["new"], preserve=True).eval()
    with torch.no_grad():
        student.classifier.groups[0].bias[1] += 3
        student.classifier.groups[1].bias.fill_(-100)
    labels = torch.zeros(1, 65, 65, dtype=torch.long)
    labels[:, :5] = 255
    balance_biases(student, sample_pixels(student, fold(teacher)[0], [(images, labels)]), range(4))
    with torch.no_grad():
        agree = (student(images).argmax(1) == teacher(images).argmax(1)).float().mean()
    assert agree > 0.97


def test_without_a_teacher_labels_mean_what_they_say():
    model = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        model.classifier.groups[0].bias -= model(images).mean(dim=(0, 2, 3))
        labels = model(images).argmax(dim=1)
        model.classifier.groups[0].bias[0] -= 1
        assert (labels == 0).any() and not (model(images).argmax(dim=1) == 0).any()
    balance_biases(model, sample_pixels(model, None, [(images, labels)]), range(3))
    with torch.no_grad():
        assert (model(images).argmax(dim=1) == labels).float().mean() > 0.97


@pytest.mark.parametrize(("balance", "moves"), [("none", ()), ("new", (3,)), ("all", (0, 1, 2, 3))])
def test_rcil_plus_balances_what_it_is_told_to(monkeypatch, balance, moves):
    seen = []
    monkeypatch.setattr("rcil.methods.rcil_plus.sample_pixels", lambda *_, **options: None)
    monkeypatch.setattr("rcil.methods.rcil_plus.measure_features", lambda *_: None)
    monkeypatch.setattr("rcil.methods.rcil_plus.balance_biases", lambda *arguments: seen.append(sorted(arguments[2])))
    teacher = at_step(small_arch(), 0)
    method = make_method("rcil-plus", balance=balance, refit=False, fuse=False)
    method.finish(method.begin(teacher, ["new"]), teacher, teacher, StepInfo(3, 1), [])
    assert seen == ([list(moves)] if moves else [])
    method.finish(teacher, teacher, teacher, StepInfo(3, 0), [])
    assert len(seen) == bool(moves)  # a domain step has nothing to balance
