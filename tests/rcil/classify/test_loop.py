import numpy as np
import pytest
import torch

from rcil.classify.data import LabelledImages
from rcil.classify.loader import as_planes
from rcil.classify.loop import StepJob, embed, predict, recalibrate, train_step, tune
from rcil.classify.methods import HeadSizes, make_classify_method
from rcil.classify.network import build_classifier, next_step
from rcil.classify.task import TrainingSection
from rcil.core.errors import TrainingError
from rcil.model.architecture import Architecture

SETTINGS = TrainingSection(iterations=(60, 4), tune_iterations=3, batch=8, lr=(0.03, 0.05), shift=1)


def coloured(count=8, classes=2):
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), count)
    images = random.integers(0, 60, (len(labels), 16, 16, 3))
    images[np.arange(len(labels)), :, :, labels] += 190
    return LabelledImages(images.astype(np.uint8), labels)


def job(index=0, settings=SETTINGS, sizes=(2,), name="eeil", events=None):
    listen = (lambda event: None) if events is None else events.append
    method = make_classify_method(name, {})
    return StepJob(index, HeadSizes(sizes), method, settings, torch.Generator().manual_seed(0), listen)


def network(name="eeil", **changes):
    torch.manual_seed(0)
    arch = Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=4).replace(**changes)
    return build_classifier(arch, make_classify_method(name, {}).head, [["a", "b"]])


@pytest.mark.parametrize("name", ["eeil", "podnet"])
def test_step_0_learns_what_is_easy(name):
    model, data, events = network(name, rc=None), coloured(), []
    train_step(job(name=name, events=events), model, None, data)
    assert (predict(model, data.images).numpy() == data.labels).all()
    assert len(events) == 60
    assert (events[-1].iteration, events[-1].iterations, events[-1].images) == (60, 60, 8)
    assert events[0].lr == pytest.approx(0.03) and 0 < events[-1].lr < 0.003


def test_a_later_step_leaves_the_old_branch_alone_and_moves_the_new():
    teacher, data = network(), coloured(classes=3)
    student = next_step(teacher)
    student.head = student.head.extended(["c"], "random")
    before = {name: value.clone() for name, value in student.state_dict().items()}
    events = []
    later = job(1, sizes=(2, 1), events=events)
    train_step(later, student, teacher, data)
    assert set(events[0].terms) == {"ce", "kd"}
    assert (events[-1].iteration, events[-1].iterations) == (4, 7), "the tuning counts too"
    moved = {name for name, value in student.state_dict().items() if not torch.equal(value, before[name])}
    assert not [name for name in moved if ".old." in name]
    assert [name for name in moved if ".new.conv" in name]


def test_tuning_podnet_moves_the_head_alone_and_at_its_own_rate():
    teacher, data, events = network("podnet"), coloured(), []
    student = next_step(teacher)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    tune(job(1, sizes=(1, 1), name="podnet", events=events), student, teacher, data)
    moved = {name for name, value in student.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(name.startswith("head.") for name in moved)
    assert events[0].lr == pytest.approx(0.05 * 0.01)


def test_a_loss_that_is_not_finite_ends_the_run():
    model = network()
    with torch.no_grad():
        model.head.groups[0].weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="step 0, iteration 1: the loss term ce is not finite"):
        train_step(job(), model, None, coloured())


def test_embeddings_do_not_depend_on_the_company():
    model, images = network(), coloured().images
    together, alone = embed(model, images), torch.cat([embed(model, image[None]) for image in images])
    assert together.shape == (16, 32)
    assert torch.allclose(together, alone, atol=1e-4)


def test_recalibrated_norms_have_the_statistics_of_the_images():
    """One batch of all images, unmoved: the stem's running mean is the mean of what its conv gives."""
    data = coloured()
    settings = SETTINGS.model_copy(update={"settle": 1, "batch": 16, "shift": 0})
    model = network(rc=None)
    before = {name: p.clone() for name, p in model.named_parameters()}
    recalibrate(job(), model, data)
    stem = model.backbone.stem
    assert not stem.norm.running_mean.any(), "not asked for"
    recalibrate(job(settings=settings), model, data)
    with torch.no_grad():
        expected = stem.conv(as_planes(torch.from_numpy(data.images))).mean(dim=(0, 2, 3))
    torch.testing.assert_close(stem.norm.running_mean, expected, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters()) and not model.training
