"""The learning rate at which `strict` finds a new class over fixed features."""

import numpy as np
import pytest
import torch
from sites import make_site

from rcil.data.site import read_site
from rcil.methods import StepInfo, make_method
from rcil.methods.pixels import sample_pixels
from rcil.methods.refit import refit_classifier
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build
from rcil.site.recipe import STRICT_LR
from rcil.tasks.task import TrainingSection
from rcil.training.loader import Crops, CropSettings

ITERATIONS = 100


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A network with random features, whose rows know background and ball; an image, its labels and the truth."""
    samples = read_site(make_site(tmp_path_factory.mktemp("site"), images=1)).splits["train"]
    names = [["background", "ball"]]
    torch.manual_seed(0)
    network = build(Architecture(backbone="resnet18", width=8, head_width=32, output_stride=8, rc=None), names).eval()
    metadata = Metadata(architecture=network.arch, classes=class_table(names))

    def labelled(*rows):
        table = np.pad(np.array(rows, np.uint8), (0, 253))
        return Crops(samples, table, metadata, CropSettings.of(TrainingSection(), 1.0), (0, 0)).whole(0, 1.0)

    refit_classifier(network, sample_pixels(network, None, [labelled(0, 1, 255)]))
    image, labels = labelled(0, 0, 2)
    return network, image, labels, labelled(0, 1, 2)[1]


def iou_of_the_new_class(scene, lr):
    network, image, labels, truth = scene
    method = make_method("strict")
    student = method.begin(network, ["cone"])
    method.set_training(student)
    rows = [parameter for parameter in student.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(rows, lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, ITERATIONS, power=0.9)
    for _ in range(ITERATIONS):
        optimiser.zero_grad()
        method.terms(student(image, maps="before"), None, labels, StepInfo(2, 1)).total.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        found, wanted = student(image).argmax(1) == 2, truth == 2
    return (found & wanted).sum() / (found | wanted).sum()


def test_the_derived_rate_finds_the_class_and_that_of_a_network_does_not(scene):
    assert iou_of_the_new_class(scene, STRICT_LR["adamw"]) > 0.5
    assert iou_of_the_new_class(scene, 0.001) < 0.4
