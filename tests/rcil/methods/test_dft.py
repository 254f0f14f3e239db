import pytest
import torch
from networks import at_step, small_arch

from rcil.core.errors import ConfigError
from rcil.methods import METHODS, StepInfo, make_method
from rcil.site.advice import KEEPS_OLD

COUNT = 3


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    labels = torch.tensor([0, 0, 0, COUNT, 255])[torch.randint(0, 5, (2, 65, 65), generator=generator)]
    return torch.randn(2, 3, 65, 65, generator=generator), labels


def test_it_is_a_linear_probe(batch):
    """Only the new rows move, old logits stay bit-identical, and the rows start at random."""
    images, labels = batch
    old = at_step(small_arch(), 0)
    method = make_method("dft")
    student = method.begin(old, ["new"])
    before = {key: value.clone() for key, value in student.state_dict().items()}
    weight, bias = student.classifier.rows()
    assert not torch.equal(weight[COUNT], weight[0]) and not torch.equal(bias[COUNT], bias[0])
    optimiser = torch.optim.SGD([p for p in student.parameters() if p.requires_grad], 0.1)
    losses = []
    for _ in range(3):
        method.set_training(student)
        terms = method.terms(student(images, maps="before"), None, labels, StepInfo(COUNT, 1))
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()
        losses.append(terms["ce"].item())
    moved = {key for key, value in student.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {"classifier.groups.1.weight", "classifier.groups.1.bias"}
    assert losses[2] < losses[0]
    with torch.no_grad():
        given, expected = (each(images, maps="before").logits_small for each in (student.eval(), old.eval()))
    assert torch.equal(given[:, :COUNT], expected)


def test_new_rows_have_the_gradient_of_strict(batch):
    """Which old class a pixel shows makes no difference to them."""
    images, labels = batch
    student = make_method("dft").begin(at_step(small_arch(), 0).double(), ["new"])
    gradients = []
    for name in ("dft", "strict"):
        student.zero_grad()
        maps = student(images.double(), maps="before")
        make_method(name).terms(maps, None, labels, StepInfo(COUNT, 1)).total.backward()
        gradients.append([p.grad.clone() for p in student.parameters() if p.requires_grad])
    assert len(gradients[0]) == 2
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-4


def test_a_step_without_a_class_is_refused():
    with pytest.raises(ConfigError, match="'dft' has nothing to train"):
        make_method("dft").begin(at_step(small_arch(), 0), [])


def test_methods_that_keep_old_logits_are_known_everywhere():
    assert sorted(KEEPS_OLD) == sorted(name for name, method in METHODS.items() if method.keeps_old)
