import json

import numpy as np
from networks import at_step, small_arch
from sites import write_sample

from rcil.core.drawing import lut_of
from rcil.data.site import read_site
from rcil.demo.picture import _smooth, draw_grid, paint, pick, pick_scenes
from rcil.inference import Model
from rcil.model.metadata import Metadata, class_table


def site_with(root, masks, names=("background", "ball", "cone")):
    for name, mask in masks.items():
        write_sample(root, "val", name, mask)
    (root / "classes.txt").write_text("\n".join(names) + "\n")
    return read_site(root)


def test_pictures_show_most_of_the_wanted_classes(tmp_path):
    masks = {name: np.zeros((32, 32), np.uint8) for name in ("ball_only", "both", "much_of_both", "empty")}
    masks["ball_only"][:16] = 1
    masks["both"][:2, :2], masks["both"][4:6, :2] = 1, 2
    masks["much_of_both"][:8], masks["much_of_both"][8:16] = 1, 2
    data = site_with(tmp_path, masks)
    assert [sample.name for sample in pick(data, "val", ("ball", "cone"), 2)] == ["much_of_both", "both"]


def test_the_grid_has_a_column_for_each_model_and_a_legend(tmp_path):
    mask = np.zeros((40, 48), np.uint8)
    mask[:20] = 1
    model = at_step(small_arch("resnet18"), 0).eval()
    names = list(model.names)
    data = site_with(tmp_path, {"a": mask, "b": mask}, names)
    metadata = Metadata(architecture=model.arch, classes=class_table([names]))
    picture = draw_grid(data.splits["val"], data, dict.fromkeys(("before", "after"), Model(model, metadata)))
    assert picture.shape[1] > 4 * 2 * 48, "twice the size of the images"
    assert picture.shape[0] > 2 * 2 * 40


def test_a_class_has_one_colour_whatever_its_row(tmp_path, monkeypatch):
    """Models that learned classes in another order, and give the same answer, look the same."""
    model = at_step(small_arch("resnet18"), 0).eval()
    names = list(model.names)
    data = site_with(tmp_path, {"a": np.zeros((40, 48), np.uint8)}, names)
    orders = {"first": names, "last": [names[0], *reversed(names[1:])]}
    colours = {c.name: c.colour for c in class_table([names])}
    described = {
        title: Metadata(
            architecture=model.arch,
            classes=[c.model_copy(update={"colour": colours[c.name]}) for c in class_table([order])],
        )
        for title, order in orders.items()
    }
    answers = {
        id(d): np.full((40, 48), [c.name for c in d.classes].index(names[1]), np.uint8) for d in described.values()
    }
    models = {title: Model(model, d) for title, d in described.items()}
    monkeypatch.setattr(Model, "segment", lambda model, image: answers[id(model.metadata)])
    drawn = []
    monkeypatch.setattr("rcil.demo.picture.compose", lambda rows, *_: drawn.extend(rows))
    draw_grid(data.splits["val"], data, models)
    _, one, other, _ = drawn[0]
    assert np.array_equal(one, other)


def test_one_scene_per_domain_that_shows_the_class_and_many_others(tmp_path):
    masks = {name: np.zeros((40, 40), np.uint8) for name in ("huge", "rich", "rain", "none")}
    masks["huge"][:] = 2
    masks["rich"][:4], masks["rich"][4:8] = 2, 1
    masks["rain"][:1] = 2
    masks["none"][:] = 1
    domains = {"val/huge": "sunny", "val/rich": "sunny", "val/none": "sunny", "val/rain": "rain"}
    (tmp_path / "dataset.json").write_text(json.dumps({"image_domains": domains}))
    data = site_with(tmp_path, masks)
    assert [s.name for s in pick_scenes(data, "val", "cone", ("rain", "sunny", "night"))] == ["rain", "rich"]


def test_painted_regions_have_smooth_outlined_edges():
    image, mask = np.full((20, 20, 3), 100, np.uint8), np.zeros((20, 20), np.uint8)
    mask[:, 10:] = 1
    mask[:4] = 255
    painted = paint(image, mask, lut_of({1: (200, 0, 0)}))
    assert painted.shape == (40, 40, 3)
    row = painted[30, :, 0].astype(int)
    assert (row[:18] == 100).all() and (row[26:] == 150).all(), "half of the colour inside, none outside"
    assert row.max() == 195, "the outline is almost opaque"
    assert (painted[:6] == 100).all(), "ignored pixels stay as they are"


def test_enlarged_masks_keep_their_shape_and_have_no_other_classes():
    mask = np.zeros((16, 16), np.uint8)
    mask[4:12, 4:12] = 7
    mask[4:12, 12:] = 3
    large = _smooth(mask, 4)
    assert set(np.unique(large)) == {0, 3, 7}, "no class between two others"
    assert large[32, 32] == 7
    assert abs(int((large == 7).sum()) - 32 * 32) < 80
