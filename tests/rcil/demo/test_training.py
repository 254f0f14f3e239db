import pytest
import torch
from networks import small_arch

from rcil.demo.scenes import CLASSES, make_scene
from rcil.demo.training import BATCH, Step, batches, evaluate, normalise, train
from rcil.nn import begin_step, build


def test_labels_know_only_the_taught_classes():
    ((images, labels),) = batches(Step((3,), 1, 0.1, first_seed=40))
    assert images.shape == (BATCH, 3, 128, 128)
    assert set(labels.unique().tolist()) == {0, 3}
    truth = torch.from_numpy(make_scene(40)[1])
    assert torch.equal(labels[0] == 3, truth == 3)


def test_normalise():
    black, white = (normalise(make_scene(0)[0] * 0 + value)[:, 0, 0] for value in (0, 255))
    torch.testing.assert_close(black, -torch.tensor([0.485 / 0.229, 0.456 / 0.224, 0.406 / 0.225]))
    torch.testing.assert_close(white - black, 1 / torch.tensor([0.229, 0.224, 0.225]))


class Oracle(torch.nn.Module):
    """Answers with the truth of the scene after the last, or always background."""

    names = CLASSES

    def __init__(self, truth):
        super().__init__()
        self.truth, self.seed = truth, 900_000

    def forward(self, x):
        mask = torch.from_numpy(make_scene(self.seed)[1]).long() * self.truth
        self.seed += 1
        return torch.nn.functional.one_hot(mask, 4).permute(2, 0, 1)[None].float()


def test_evaluate():
    assert evaluate(Oracle(1), scenes=3) == dict.fromkeys(CLASSES, 1.0)
    blind = evaluate(Oracle(0), scenes=3)
    assert 0.3 < blind["background"] < 0.9
    assert blind["cone"] == 0


@pytest.mark.parametrize("method", ["fine-tuning", "rcil"])
def test_one_step_of_training_lowers_the_loss(method):
    torch.manual_seed(0)
    teacher = build(small_arch(), [["background", "ball", "crate"]]).eval()
    student = begin_step(teacher, ["cone"], rows="balanced")
    frozen = {n: p.clone() for n, p in student.named_parameters() if not p.requires_grad}
    losses = []
    step = Step((3,), 8, 0.02, first_seed=0)
    train(student, step, teacher=teacher, method=method, progress=lambda _, loss: losses.append(loss))
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert frozen
    assert all(torch.equal(p, frozen[n]) for n, p in student.named_parameters() if n in frozen)
