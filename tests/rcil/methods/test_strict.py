import pytest
import torch
from networks import at_step, small_arch

from rcil.core.errors import ConfigError
from rcil.methods import StepInfo, make_method
from rcil.nn import fold


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    labels = torch.tensor([0, 0, 0, 3, 255])[torch.randint(0, 5, (2, 65, 65), generator=generator)]
    return torch.randn(2, 3, 65, 65, generator=generator), labels


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("form", ["rc", "plain", "folded"])
def test_training_moves_the_new_rows_alone(batch, step, form):
    images, labels = batch
    old = at_step(small_arch(**({"rc": None} if form == "plain" else {})), step)
    if form == "folded":
        old, step = fold(old)[0], 0  # its rows are one group
    count = len(old.names)
    labels = labels.where(labels != 3, count)
    method = make_method("strict")
    student = method.begin(old, ["new"])
    before = {key: value.clone() for key, value in student.state_dict().items()}
    weight, bias = student.classifier.rows()
    assert torch.equal(weight[count], weight[0]) and torch.equal(bias[count], bias[0])
    optimiser = torch.optim.SGD([p for p in student.parameters() if p.requires_grad], 0.1, weight_decay=0.1)
    losses = []
    for _ in range(3):
        method.set_training(student)
        loss = method.terms(student(images, maps="before"), None, labels, StepInfo(count, 1)).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    moved = {key for key, value in student.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {f"classifier.groups.{step + 1}.weight", f"classifier.groups.{step + 1}.bias"}
    assert losses[2] < losses[0]
    with torch.no_grad():
        given, expected = student(images, maps="before"), old(images, maps="before")
    assert torch.equal(given.logits_small[:, :count], expected.logits_small)
    # torch enlarges maps of three channels with a kernel of their own, which rounds otherwise
    torch.testing.assert_close(given.logits[:, :count], expected.logits, rtol=1e-6, atol=1e-6)


def test_the_old_network_can_still_learn_afterwards():
    old = at_step(small_arch(), 0)
    make_method("strict").begin(old, ["new"])
    assert all(p.requires_grad for p in old.parameters())


def test_step_0_trains_everything(batch):
    images, labels = batch
    model = at_step(small_arch(rc=None), 0)
    method = make_method("strict")
    method.set_training(model)
    assert all(m.training for m in model.modules())
    terms = method.terms(model(images, maps="before"), None, labels.where(labels != 3, 2), StepInfo(0, 3))
    assert set(terms) == {"ce"}


def test_impossible_starts_are_refused():
    model = at_step(small_arch(), 0)
    with pytest.raises(ConfigError, match="without a new class"):
        make_method("strict").begin(model, [])
    with pytest.raises(ConfigError, match=r"folded[^$]*rcil\.nn\.unfold"):
        make_method("rcil").begin(fold(model)[0], ["new"])
