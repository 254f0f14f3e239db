import numpy as np
from networks import at_step, small_arch
from sites import write_sample

from rcil.data.site import read_site
from rcil.demo.picture import draw_grid, pick
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
    assert picture.shape[1] >= 4 * 48
    assert picture.shape[0] > 2 * 40 + 26


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
    picture = draw_grid(data.splits["val"], data, models)
    drawn = []
    monkeypatch.setattr("rcil.demo.picture.grid", lambda rows, titles: drawn.extend(rows) or picture)
    draw_grid(data.splits["val"], data, models)
    _, _, one, other = drawn[0]
    assert np.array_equal(one, other)
