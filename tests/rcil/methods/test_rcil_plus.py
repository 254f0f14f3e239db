import math
from dataclasses import replace

import pytest
import torch
from networks import at_step, small_arch

from rcil import losses
from rcil.core.errors import ConfigError
from rcil.methods import StepInfo, make_method
from rcil.methods.rcil_plus import EXCLUSIVE
from rcil.nn import fold
from rcil.nn.fuse import fuse
from rcil.nn.regmean import measure_fusion

INFO = StepInfo(old=3, new=1)
BARE = {"taught": False, "refit": False, "balance": "none", "fuse": False}


def started(**options):
    """Method, student, both sides' maps and labels at the start of step 1."""
    teacher = at_step(small_arch(), 0)
    method = make_method("rcil-plus", **{**BARE, "gamma": 0.001, **options})
    torch.manual_seed(0)
    images = torch.randn(2, 3, 65, 65)
    with torch.no_grad():  # no class is everywhere
        teacher.classifier.groups[0].bias -= teacher(images).mean(dim=(0, 2, 3))
    labels = torch.tensor([0, 0, 0, 3, 255])[torch.randint(0, 5, (2, 65, 65))]
    student = method.begin(teacher, ["new"]).eval()
    with torch.no_grad():
        old = fold(teacher)[0](images, maps=method.maps)
    method.prepare([(old, labels)], INFO, student)
    return method, student, student(images, maps=method.maps), old, labels


def test_background_takes_the_names_that_the_old_model_is_sure_of():
    method, _, new, old, labels = started(pseudo=True)
    thresholds = method.state_dict()["thresholds"]
    named = losses.certain_labels(old.logits, labels, thresholds)
    assert 0.1 < ((named != labels) & (labels == 0)).float().mean() / (labels == 0).float().mean() < 0.9
    terms = method.terms(new, old, labels, INFO)
    torch.testing.assert_close(terms["unce"], losses.completed_cross_entropy(new.logits, named, 3))
    plain = make_method("rcil", gamma=0.001).terms(new, old, labels, INFO)
    for name in ("unkd", "pcd_spatial", "pcd_channel"):
        torch.testing.assert_close(terms[name], plain[name])


def test_switched_off_it_is_rcil():
    method, _, new, old, labels = started()
    expected = make_method("rcil", gamma=0.001).terms(new, old, labels, INFO)
    assert method.terms(new, old, labels, INFO) == expected


def test_thresholds_survive_an_interruption():
    method, _, new, old, labels = started(pseudo=True)
    resumed = make_method("rcil-plus", **BARE, gamma=0.001, pseudo=True)
    with pytest.raises(RuntimeError, match="prepare"):
        resumed.terms(new, old, labels, INFO)
    resumed.load_state_dict(method.state_dict())
    assert torch.equal(resumed.terms(new, old, labels, INFO).total, method.terms(new, old, labels, INFO).total)


def test_frozen_rows_take_no_gradient():
    method, student, new, old, labels = started(freeze_rows=True)
    method.terms(new, old, labels, INFO).total.backward()
    first, last = student.classifier.groups
    assert first.weight.grad is None and first.bias.grad is None
    assert last.weight.grad is not None


def test_fitted_rows_fit_better():
    """A single step from the balanced start already lowers the loss on the new class."""
    loss = {}
    for fitted in (False, True):
        _, _, new, _, labels = started(fit_rows=fitted)
        loss[fitted] = losses.unbiased_cross_entropy(new.logits, labels, 3).item()
    assert loss[True] < loss[False]


def test_sigmoids_from_the_start():
    method, _, new, old, labels = started(sigmoid=True)
    assert method.first_step == "sigmoid"
    terms = method.terms(new, old, labels, INFO)
    torch.testing.assert_close(terms["bce"], losses.sigmoid_step(new.logits, labels, old.logits))
    assert set(terms) == {"bce", "pcd_spatial", "pcd_channel"}
    first = method.terms(old, None, labels.clamp(max=2), StepInfo(0, 3))
    torch.testing.assert_close(first["bce"], losses.binary_cross_entropy(old.logits, labels.clamp(max=2)))


def test_a_domain_step_learns_its_first_class_from_the_labels():
    """There row 0 is a class like any other: where the labels name it, the old model's answer does not count."""
    method, _, new, old, labels = started(sigmoid=True)
    info, labels = StepInfo(old=4, new=0), labels.where(labels != 3, 2)
    old = replace(old, logits=torch.cat((old.logits, old.logits[:, :1]), dim=1))
    terms = method.terms(new, old, labels, info)
    torch.testing.assert_close(terms["bce"], losses.binary_cross_entropy(new.logits, labels))
    assert set(terms) == {"bce", "pcd_spatial", "pcd_channel"}


def test_fusion_is_as_strong_as_the_classes_are_few():
    teacher = at_step(small_arch(), 0).eval()
    method = make_method("rcil-plus", **{**BARE, "fuse": True})
    student = method.begin(teacher, ["new"])
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.1)
    fused = method.finish(student, teacher, fold(teacher)[0], INFO, [])
    was, now, got = (fold(model)[0].head.state_dict() for model in (teacher, student, fused))
    for name in got:
        torch.testing.assert_close(got[name], torch.lerp(was[name], now[name], math.sqrt(1 / 4)), msg=name)
    assert make_method("rcil-plus", **BARE).finish(student, teacher, fold(teacher)[0], INFO, []) is student


@pytest.mark.parametrize(("options", "share"), [({}, 0.5), ({"share": 0.2}, 0.2)])
def test_layers_are_fused_by_what_they_read(options, share):
    """Both networks read the same images; whatever iterates over these may do so again."""
    teacher = at_step(small_arch(), 0).eval()
    method = make_method("rcil-plus", **{**BARE, "fuse": "regmean", **options})
    student = method.begin(teacher, ["new"])
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.1)
    images = [(torch.randn(1, 3, 49, 49), torch.zeros(1, 49, 49, dtype=torch.long))]
    fused = method.finish(student, teacher, fold(teacher)[0], INFO, images)
    expected = fuse(student, teacher, share, measure_fusion(student, teacher, [images[0][0]]))
    for name, value in expected.state_dict().items():
        assert torch.equal(fused.state_dict()[name], value), name
    for name, value in fuse(student, teacher, share).state_dict().items():
        if name.endswith("old.weight"):
            assert not torch.equal(fused.state_dict()[name], value), name


def test_the_share_of_the_new_network_can_be_chosen():
    teacher = at_step(small_arch(), 0).eval()
    student = make_method("rcil-plus", **BARE).begin(teacher, ["new"])
    method = make_method("rcil-plus", **{**BARE, "fuse": True, "share": 0.1})
    for name, value in method.finish(student, teacher, teacher, INFO, []).state_dict().items():
        assert torch.equal(value, fuse(student, teacher, 0.1).state_dict()[name]), name
    with pytest.raises(ConfigError, match="fuse"):
        make_method("rcil-plus", fuse="mean")


def test_a_network_that_cannot_be_fused_is_refused_before_its_training(monkeypatch):
    monkeypatch.setattr("rcil.nn.regmean.OWN", ())
    monkeypatch.setattr("rcil.nn.regmean._reads_patches", lambda conv, layout: False)
    with pytest.raises(ConfigError, match="regmean cannot measure"):
        make_method("rcil-plus", **{**BARE, "fuse": "regmean"}).begin(at_step(small_arch(), 0), ["new"])


def test_taught_labels_stand_in_for_both_unbiased_losses():
    method, _, new, old, labels = started(taught=True)
    terms = method.terms(new, old, labels, INFO)
    torch.testing.assert_close(terms["ce"], losses.taught_cross_entropy(new.logits, labels, old.logits))
    plain = make_method("rcil", gamma=0.001).terms(new, old, labels, INFO)
    assert terms.keys() == plain.keys() - {"unce", "unkd"} | {"ce"}
    for name in ("pcd_spatial", "pcd_channel"):
        torch.testing.assert_close(terms[name], plain[name])


def test_background_is_weighed_by_its_reliability():
    method, _, new, old, labels = started(taught=True, reliable=0.2)
    expected = losses.taught_cross_entropy(new.logits, labels, old.logits, reliable=0.2)
    assert expected < losses.taught_cross_entropy(new.logits, labels, old.logits)
    torch.testing.assert_close(method.terms(new, old, labels, INFO)["ce"], expected)
    with pytest.raises(ConfigError, match="reliable needs taught"):
        make_method("rcil-plus", **{**BARE, "reliable": 0.2})
    with pytest.raises(ConfigError, match="reliable"):
        make_method("rcil-plus", reliable=1.0)


def test_a_domain_step_is_taught_by_its_labels():
    method, _, new, old, labels = started(taught=True)
    info, labels = StepInfo(old=4, new=0), labels.where(labels != 3, 2)
    old = replace(old, logits=torch.cat((old.logits, old.logits[:, :1]), dim=1))
    assert method.terms(new, old, labels, info) == make_method("rcil", gamma=0.001).terms(new, old, labels, info)


@pytest.mark.parametrize(("one", "other"), EXCLUSIVE)
def test_options_that_exclude_each_other_are_refused(one, other):
    with pytest.raises(ConfigError, match=f"{one} and {other}"):
        make_method("rcil-plus", **{**BARE, one: True, other: True})


def test_rows_are_fitted_before_after_and_in_the_first_step(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "rcil.methods.rcil_plus.sample_pixels", lambda student, teacher, images, **_: teacher is not None
    )
    monkeypatch.setattr("rcil.methods.rcil_plus.measure_features", lambda *_: None)
    for name in ("refit_classifier", "balance_biases"):
        monkeypatch.setattr(
            f"rcil.methods.rcil_plus.{name}",
            lambda student, taught, *rows, name=name, **_: calls.append((name, taught, *map(list, rows))),
        )
    teacher = at_step(small_arch(), 0)
    method = make_method("rcil-plus")
    method.finish(teacher, None, None, StepInfo(0, 3), [])
    assert calls == [("refit_classifier", False), ("balance_biases", False, [0, 1, 2])]
    calls.clear()
    student = method.begin(teacher, ["new"])
    method.start(student, fold(teacher)[0], INFO, [])
    assert calls == [("refit_classifier", True)]
    method.finish(student, teacher, fold(teacher)[0], INFO, [])
    assert calls[1:] == [("refit_classifier", True), ("balance_biases", True, [3])]
    calls.clear()
    method.start(teacher, teacher, StepInfo(3, 0), [])
    assert calls == []  # a domain step starts as it is; its labels name every class
    method.finish(teacher, teacher, fold(teacher)[0], StepInfo(3, 0), [])
    assert calls == [("refit_classifier", False)]


def test_step_0_is_trained_as_by_every_other_method(monkeypatch):
    """Rows are fitted afterwards; unfitted, the network stays as training left it."""
    words = {make_method("rcil-plus", refit=refit).first_step for refit in (False, True)}
    assert words == {make_method("rcil").first_step}
    monkeypatch.setattr("rcil.methods.rcil_plus.sample_pixels", lambda *_: pytest.fail("step 0 was changed"))
    model = at_step(small_arch(), 0)
    assert make_method("rcil-plus", refit=False).finish(model, None, None, StepInfo(0, 3), []) is model
