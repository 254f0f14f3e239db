import numpy as np
import pytest

from rcil.core.masks import read_mask
from rcil.data.site import read_site
from rcil.inference import Model
from rcil.site.background import complete_masks, completed, left_as_background

OLD, NEW = ("background", "ball"), ("cone",)


def test_the_share_that_the_old_model_is_sure_of(cones, painter, described):
    data = read_site(cones)
    shares = left_as_background(Model(painter([0, 1, 0], 2), described(OLD)), data, data.splits["train"])
    background = 64 * 96 - 1600
    assert shares == {"ball": (1600 / background, 1.0)}, "of the background, and of the images"


def test_an_unsure_model_says_nothing(cones, painter, described):
    class Unsure(painter):
        def forward(self, x):
            return super().forward(x) / 20

    data = read_site(cones)
    assert left_as_background(Model(Unsure([0, 1, 0], 2), described(OLD)), data, data.splits["train"]) == {
        "ball": (0, 0)
    }


@pytest.mark.parametrize("labelled", [set(), {"ball"}])
def test_old_classes_without_labels_are_filled_in(cones, painter, described, tmp_path, labelled):
    data = read_site(cones)
    model = Model(painter([0, 1, 1], 2), described(OLD))  # takes cones for balls
    new, folder = described(OLD, NEW), tmp_path / "masks"
    complete_masks(model, new, data, data.splits["val"], labelled, folder)
    filled, samples = completed(new, data.splits["val"], folder)
    assert filled.names == ("background", "ball", "cone")
    assert [s.image for s in samples] == [s.image for s in data.splits["val"]]
    mask = read_mask(samples[0].mask)
    ball = mask[12:44, 8:40]
    assert (ball == (0 if labelled else 1)).all()
    assert (mask[12:44, 54:86] == 2).all(), "labels of the new class stay"
    assert set(np.unique(mask)) == ({0, 2} if labelled else {0, 1, 2})
