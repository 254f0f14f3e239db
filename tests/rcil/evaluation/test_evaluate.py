import json
import math

import cv2
import numpy as np
import pytest
import torch
from commands import call
from networks import at_step, small_arch
from sites import make_site, write_sample

from rcil.checkpoint.file import save
from rcil.core.images import read_rgb
from rcil.core.reading import DataError
from rcil.data.scan import with_void_background
from rcil.data.site import read_site
from rcil.evaluation import evaluate as evaluation
from rcil.evaluation.evaluate import Confusion, evaluate, mean_iou, measure, rows_by_value
from rcil.inference import Model, as_input
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build, fold
from rcil.training.compare import step_means

STEPS = [["background", "cone"], ["ball"]]


class Painter(torch.nn.Module):
    """Reads the class from the brightness that the test site gives it, in the model's own row order."""

    arch = small_arch(rc=None, folded=True)
    names = ("background", "cone", "ball")

    def forward(self, x):
        brightness = x[:, 0] * 0.229 + 0.485
        ids = ((brightness * 255 - 20) / 60).round().long().clamp(0, 2)
        rows = torch.tensor([0, 2, 1])[ids]
        return torch.nn.functional.one_hot(rows, 3).permute(0, 3, 1, 2).float()


@pytest.fixture
def site(tmp_path):
    return read_site(make_site(tmp_path / "site"))


def metadata(**fields):
    return Metadata(architecture=small_arch(), classes=class_table(STEPS), step=1, **fields)


def test_classes_are_matched_by_name(site):
    report = evaluate(Model(Painter(), metadata()), site, site.splits["val"])
    assert report.images == 6
    assert [(c.name, c.step) for c in report.classes] == [("background", 0), ("cone", 0), ("ball", 1)]
    assert all(c.iou > 0.9 for c in report.classes)  # the JPEG blurs the borders
    assert report.all == pytest.approx(np.mean([c.iou for c in report.classes]))
    assert report.old == pytest.approx(np.mean([c.iou for c in report.classes[:2]]))
    assert report.new == report.classes[2].iou
    assert report.unknown == ()
    assert report.confusion.sum() == 6 * 64 * 96


def test_void_background_is_neither_judged_nor_averaged(site):
    void = with_void_background(site)
    report = evaluate(Model(Painter(), metadata()), void, void.splits["val"])
    assert report.confusion.sum() == 6 * 2 * 40 * 40, "only pixels of named classes count"
    assert report.all == pytest.approx(np.mean([c.iou for c in report.classes[1:]]))
    assert report.old == report.classes[1].iou


def test_void_background_has_no_iou_while_later_classes_count_as_background(site):
    class BeforeBall(Painter):
        names = ("background", "cone")

        def forward(self, x):
            return super().forward(x)[:, :2]

    known = Metadata(architecture=small_arch(), classes=class_table(STEPS[:1]))
    void = with_void_background(site)
    report = evaluate(Model(BeforeBall(), known), void, void.splits["val"])
    assert report.classes[0].pixels == 6 * 40 * 40 and math.isnan(report.classes[0].iou)
    means = step_means(report.as_document(), {"background", "cone"})
    assert means["all"] == report.all == report.classes[1].iou


def test_centre_crops_are_evaluated_at_their_own_size(site):
    """64 x 96 pixels become 32 x 48, of which columns 8 to 39 count; every second pixel of a mask remains."""
    report = evaluate(Model(Painter(), metadata()), site, site.splits["val"], test_crop=32)
    assert {c.name: c.pixels for c in report.classes} == {"background": 6 * 444, "ball": 6 * 280, "cone": 6 * 300}
    assert report.all > 0.9


def test_a_class_the_model_does_not_know_is_background(site):
    table = rows_by_value(site, ("background", "ball"))
    assert table[[0, 1, 2, 255]].tolist() == [0, 1, 0, 255]


def test_no_common_class_is_an_error(site):
    with pytest.raises(DataError, match=r"(?s)shares no class.*ball, cone"):
        rows_by_value(site, ("background", "tree"))


def test_input_follows_the_metadata():
    image = np.zeros((1, 1, 3), np.uint8)
    image[0, 0] = (255, 0, 0)
    flat = {"mean": (0.0, 0.0, 0.0), "std": (0.5, 1.0, 1.0)}
    assert as_input(metadata(**flat), image)[:, 0, 0].tolist() == [2, 0, 0]
    assert as_input(metadata(colour_order="BGR", **flat), image)[:, 0, 0].tolist() == [0, 0, 1]


def test_folding_does_not_change_the_result(site):
    model = at_step(small_arch(), 0)
    meta = Metadata(architecture=model.arch, classes=class_table([["background", "ball", "cone"]]))
    renamed = build(model.arch, [["background", "ball", "cone"]]).eval()
    renamed.load_state_dict(model.state_dict())
    report = evaluate(Model(renamed, meta), site, site.splits["val"][:1])
    assert math.isnan(report.old)
    assert report.confusion.sum() == 64 * 96


def test_command_line(tmp_path):
    model = build(small_arch(), [["background", "ball", "cone"]])
    save(tmp_path / "m.safetensors", model, Metadata(architecture=model.arch, classes=class_table([list(model.names)])))
    make_site(tmp_path / "site")
    words = [str(tmp_path / "m.safetensors"), "--data", str(tmp_path / "site")]
    done = call("rcil eval", *words, "-o", str(tmp_path / "r.json"))
    assert done.code == 0 and "mean, all" in done.out
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["miou"]["old"] is None
    assert len(document["classes"]) == 3
    assert np.sum(document["confusion"]) == 6 * 64 * 96
    void = call("rcil eval", *words, "--void-background", "--json")
    assert np.sum(json.loads(void.out)["confusion"]) == 6 * 2 * 40 * 40
    bad = call("rcil eval", *words, "--split", "vall")
    assert bad.code == 2
    assert "Did you mean 'val'" in bad.err


def test_a_larger_look_interpolates():
    """Enlarged images are smooth: nearest-neighbour blocks would reach the network as steps."""
    model = build(small_arch("resnet18"), [["background", "ball"]]).eval()
    metadata = Metadata(architecture=model.arch, classes=class_table([["background", "ball"]]))
    ramp = np.repeat(np.linspace(0, 255, 32).astype(np.uint8)[None, :, None], 32, 0).repeat(3, 2)
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert Model(model, metadata).logits([ramp], scale=2).shape == (1, 2, 32, 32)
    assert seen[0].shape == (1, 3, 64, 64)
    steps = seen[0][0, 0, 0].diff()
    assert steps[2:-2].max() < 1.5 * steps[2:-2].median()


@pytest.fixture
def sizes(site):
    """The site with images of three sizes: those at places 1 and 4 are cut."""
    for place, sample in enumerate(site.splits["val"]):
        if place in (1, 4):
            for path in (sample.image, sample.mask):
                cv2.imwrite(str(path), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[: 40 + place])
    return site


class Groups(torch.nn.Module):
    """A network that remembers the sizes of its batches and the precision that it ran in."""

    def __init__(self, model):
        super().__init__()
        self.model, self.arch, self.names, self.seen = model, model.arch, model.names, []

    def forward(self, x):
        y = self.model(x)
        self.seen.append((len(x), y.dtype))
        return y


def network():
    model = build(small_arch(), [["background", "ball", "cone"]])
    return Groups(fold(model.eval())[0]), Metadata(architecture=model.arch, classes=class_table([model.names]))


def test_images_of_one_size_are_segmented_together(sizes):
    model, meta = network()
    one = measure(Model(model, meta), sizes, sizes.splits["val"], scale=0.5)
    assert [count for count, _ in model.seen] == [1] * 6, "on a CPU"
    model.seen.clear()
    steps = []
    samples, pixels = sizes.splits["val"], 3 * 64 * 96
    together = measure(Model(model, meta), sizes, samples, lambda *done: steps.append(done), scale=0.5, pixels=pixels)
    assert sorted(count for count, _ in model.seen) == [1, 1, 1, 3], "at most so many pixels at a time"
    assert together.matrix.tolist() == one.matrix.tolist()
    assert steps[-1] == (6, 6)


def test_every_sample_is_observed_under_its_own_index(sizes):
    model, meta = network()
    samples = sizes.splits["val"]
    alone = [measure(Model(model, meta), sizes, [sample]).matrix.tolist() for sample in samples]
    seen = {}
    measure(
        Model(model, meta),
        sizes,
        samples,
        pixels=10**9,
        observe=lambda index, image, matrix: seen.update({index: (image.shape, matrix.tolist())}),
    )
    assert [seen[index][1] for index in range(6)] == alone
    assert [seen[index][0] for index in range(6)] == [read_rgb(sample.image).shape for sample in samples]


def test_intervals_need_different_scenes(tmp_path):
    generator = np.random.default_rng(0)
    for index in range(6):
        mask = np.repeat(np.repeat(generator.integers(0, 3, (4, 6)), 16, 0), 16, 1)
        write_sample(tmp_path, "val", f"scene{index}", mask)
        mask[:, : 4 * index] = 0  # what the model finds there is wrong
        cv2.imwrite(str(tmp_path / "masks" / "val" / f"scene{index}.png"), mask.astype(np.uint8))
    (tmp_path / "classes.txt").write_text("background\nball\ncone\n")
    data = read_site(tmp_path)
    report = evaluate(Model(Painter(), metadata()), data, data.splits["val"])
    assert report.groups == 6 and report.as_document()["groups"] == 6
    for c in report.classes:
        low, high = c.interval
        assert c.groups == 6 and 0.5 < low < c.iou < high < 1
    alike = evaluate(Model(Painter(), metadata()), data, [data.splits["val"][0]] * 4)
    assert alike.groups == 1 and [c.interval for c in alike.classes] == [None] * 3


def test_few_images_wait_for_others_of_their_size(sizes, monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_WAITING", 2)
    model, meta = network()
    measure(Model(model, meta), sizes, sizes.splits["val"], pixels=10**9)
    assert sum(count for count, _ in model.seen) == 6
    assert max(count for count, _ in model.seen) <= 3


def test_half_precision_runs_under_autocast(site):
    model, meta = network()
    measure(Model(model, meta), site, site.splits["val"][:1], dtype=torch.bfloat16)
    assert [dtype for _, dtype in model.seen] == [torch.bfloat16]


def test_by_hand():
    confusion = Confusion(4)
    truth = np.array([[0, 0, 1, 1], [2, 2, 255, 255]], np.uint8)
    predicted = np.array([[0, 1, 1, 1], [0, 2, 0, 3]], np.uint8)
    confusion.update(truth, predicted)
    # 0: 1 hit, union 3; 1: 2 hits, union 3; 2: 1 hit, union 2; 3: only predicted where ignored.
    assert confusion.iou[:3].tolist() == pytest.approx([1 / 3, 2 / 3, 1 / 2])
    assert math.isnan(confusion.iou[3])
    assert confusion.pixel_accuracy == pytest.approx(4 / 6)
    assert confusion.matrix[2].tolist() == [1, 0, 1, 0]


def test_a_class_that_no_mask_labels_has_no_iou():
    """Its predictions are misses of the true class; an IoU of 0 would be the fault of the labels, not of the model."""
    confusion = Confusion(3)
    confusion.update(np.array([[0, 0, 1, 1]], np.uint8), np.array([[0, 2, 1, 1]], np.uint8))
    assert confusion.iou[:2].tolist() == [1 / 2, 1]
    assert math.isnan(confusion.iou[2])


def test_means_leave_absent_classes_out():
    iou = np.array([0.5, np.nan, 1.0])
    assert mean_iou(iou, [0, 1, 2]) == 0.75
    assert math.isnan(mean_iou(iou, [1]))
    assert math.isnan(mean_iou(iou, []))


def test_nothing_seen():
    assert math.isnan(Confusion(2).pixel_accuracy)
