"""Site tasks have a recipe of their own; whatever a task says wins."""

import pytest
from pydantic import ValidationError

from rcil.tasks.recipes import SITE_TRAINING
from rcil.tasks.task import Task

PROTOCOL = {"steps": [["ball"]]}


def test_a_site_task_needs_data_and_classes_only():
    task = Task.model_validate({"data": {"root": "site"}, "protocol": PROTOCOL})
    assert task.recipe == "site"
    assert (task.network.head, task.network.backbone, task.network.pretrained) == (
        "deeplabv3plus",
        "efficientnet_lite0",
        "imagenet",
    )
    assert task.training.channels_last
    assert {key: getattr(task.training, key) for key in SITE_TRAINING} == SITE_TRAINING


def test_what_a_task_says_wins():
    document = {
        "data": {"root": "site"},
        "protocol": PROTOCOL,
        "network": {"backbone": "resnet18", "output_stride": 8},
        "training": {"crop": 128, "ema": 0},
    }
    task = Task.model_validate(document)
    assert task.network.pretrained is None, "there are no installed weights of a ResNet"
    assert task.network.pool_window == 16
    assert (task.training.crop, task.training.ema, task.training.optimiser) == (128, 0, "adamw")
    assert document["training"] == {"crop": 128, "ema": 0}, "the caller's document is not changed"


@pytest.mark.parametrize("section", ["network", "training", "data"])
@pytest.mark.parametrize("value", [None, "x", [1], 5])
def test_a_section_that_is_none_is_refused(section, value):
    with pytest.raises(ValidationError, match=section):
        Task.model_validate({"data": {"root": "site"}, "protocol": PROTOCOL, section: value})


def test_published_datasets_follow_the_paper():
    task = Task.model_validate({"data": {"kind": "voc", "root": "voc"}, "protocol": {"split": "15-1"}})
    assert (task.recipe, task.network.head, task.training.optimiser) == ("paper", "deeplabv3", "sgd")


def test_a_site_may_follow_the_paper():
    task = Task.model_validate({"recipe": "paper", "data": {"root": "site"}, "protocol": PROTOCOL})
    assert (task.network.backbone, task.training.batch, task.training.class_weights) == ("resnet101", 24, "none")


def test_a_dumped_task_is_read_back_as_it_was():
    task = Task.model_validate({"data": {"root": "site"}, "protocol": PROTOCOL})
    assert Task.model_validate(task.model_dump(mode="json")) == task
