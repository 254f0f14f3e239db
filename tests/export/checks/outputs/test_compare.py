import json
import math

import check_models as models
import numpy as np
import pytest
from sites import make_site

from rcil.core.errors import RcilError
from rcil.model.class_match import match_classes
from rcil.model.metadata import Metadata, class_table
from rcil_export.checks.artefact import Artefact, OnnxArtefact, Prediction
from rcil_export.checks.limits import DEFAULTS
from rcil_export.checks.outputs import variants as batch_module
from rcil_export.checks.outputs.compare import compare_outputs, shrink
from rcil_export.checks.outputs.pixels import compare_pixels
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.images import CheckImage, CheckImages, generated_images, images_for

STEPS = [["background", "car"], ["crate"]]


class Fixed(Artefact):
    """Gives the same numbers for every image."""

    kind = "fixed"

    def __init__(self, logits, *, steps=STEPS, step=1, mask=None, only_mask=False):
        metadata = Metadata(architecture=models.model().arch, classes=class_table(steps), step=step)
        super().__init__("fixed", metadata, "fp32", None)
        self.values = np.array(logits, np.float32).reshape(len(metadata.classes), 1, -1)
        self.chosen = self.values.argmax(0) if mask is None else np.array(mask)
        self.only_mask = only_mask

    def predict(self, image):
        return Prediction(self.chosen, None if self.only_mask else self.values)


def image_of(width, truth=None, data=None):
    truth = None if truth is None else np.array([truth], np.uint8)
    return CheckImages("by hand", (lambda: CheckImage("x", np.zeros((1, width, 3), np.uint8), truth),), data)


#            background      car          crate
REFERENCE = [[0, 10, 0, 0], [5, 0, 0, 4], [0, 0, 8, 4.00001]]


def test_errors_by_hand_for_old_and_new_classes():
    changed = np.array(REFERENCE)
    changed[0, 0] += 0.5
    changed[2, 2] -= 2
    report = compare_outputs(Fixed(REFERENCE), Fixed(changed), image_of(4))
    assert report.parts["all"].errors.max == pytest.approx(0.2)
    assert report.parts["old"].errors.max == pytest.approx(0.05)
    assert report.parts["new"].errors.max == pytest.approx(0.2)
    assert report.parts["all"].errors.p50 == 0
    assert report.required_absolute == pytest.approx(2)
    assert report.parts["old"].classes == ("background", "car")
    assert report.parts["new"].classes == ("crate",)
    item = next(item for item in report.as_result().items if item.key == "error")
    assert item.passed is False


def test_agreement_by_hand_with_a_tie():
    changed = np.array(REFERENCE)
    changed[1, 0] = -1  # car -> background, by a clear margin of 5 / 10
    changed[1, 3] = 4.1  # crate -> car, a tie: 1e-5 apart in a range of 10
    report = compare_outputs(Fixed(REFERENCE), Fixed(changed), image_of(4))
    everything, old, new = (report.parts[part].agreement for part in ("all", "old", "new"))
    assert (everything.pixels, everything.differing, everything.tied) == (4, 1, 1)
    assert everything.share == pytest.approx(2 / 3)
    assert (old.pixels, old.differing, old.tied) == (2, 1, 0)
    assert (new.pixels, new.differing, new.tied, new.share) == (2, 0, 1, 1)
    (swap,) = report.swaps
    assert (swap.first, swap.second, swap.pixels) == ("car", "background", 1)
    assert swap.margin == pytest.approx(0.5, rel=0.024)


def test_a_tie_excuses_only_the_tied_classes():
    changed = np.array(REFERENCE)
    changed[0, 3] = 9  # crate -> background, where car and crate were tied
    report = compare_outputs(Fixed(REFERENCE), Fixed(changed), image_of(4))
    assert (report.parts["all"].agreement.differing, report.parts["all"].agreement.tied) == (1, 0)


def test_the_mask_of_the_file_counts_not_its_logits():
    report = compare_outputs(Fixed(REFERENCE), Fixed(REFERENCE, mask=[[0, 0, 2, 2]]), image_of(4))
    assert report.parts["all"].agreement.differing == 1
    assert not report.as_result().ok


def test_what_is_not_finite_fails():
    changed = np.array(REFERENCE)
    changed[0, 1] = np.nan
    report = compare_outputs(Fixed(REFERENCE), Fixed(changed), image_of(4), DEFAULTS["int8"])
    assert report.parts["all"].errors.max == math.inf
    assert next(item for item in report.as_result().items if item.key == "error").passed is False
    json.dumps(report.as_document(), allow_nan=False)


def test_without_logits_masks_are_compared():
    report = compare_outputs(Fixed(REFERENCE), Fixed(REFERENCE, only_mask=True), image_of(4))
    items = {item.key: item for item in report.as_result().items}
    assert items["error"].passed is None and items["agreement"].passed is True
    assert items["miou"].passed is None
    json.dumps(report.as_document(), allow_nan=False)


def test_rows_are_matched_by_name():
    swapped = [REFERENCE[1], REFERENCE[0], REFERENCE[2]]
    other = Fixed(swapped, steps=[["car", "background"], ["crate"]])
    result = compare_outputs(Fixed(REFERENCE), other, image_of(4)).as_result()
    assert result.ok
    assert "other rows" in result.items[0].measured


def test_other_classes_are_an_item_and_the_common_ones_are_compared():
    parent = Fixed(REFERENCE[:2], steps=STEPS[:1], step=0)
    report = compare_outputs(parent, Fixed(REFERENCE), image_of(4))
    assert report.match.added == ("crate",)
    assert report.parts["all"].errors.max == 0
    assert report.parts["all"].agreement.differing == 0  # among the common classes
    assert report.parts["new"].classes == ()
    assert report.as_result().items[0].passed is False
    with pytest.raises(RcilError, match="no class in common"):
        compare_outputs(Fixed([[1]], steps=[["sky"]], step=0), Fixed(REFERENCE), image_of(1))


def test_masks_alone_with_other_classes_count_common_pixels_only():
    match = match_classes(
        Fixed(REFERENCE).metadata.classes, Fixed(REFERENCE[:2], steps=STEPS[:1], step=0).metadata.classes
    )
    masks = (np.array([[0, 1, 2, 1]]), np.array([[0, 0, 0, 1]]))
    found = compare_pixels(match, (None, None), masks, tie=1e-5)
    assert found.known.tolist() == [[True, True, False, True]]
    assert found.differs.tolist() == [[False, True, False, False]]


def test_miou_by_hand(tmp_path):
    site = make_site(tmp_path / "site")
    (site / "classes.txt").write_text("background\ncar\ncrate\n")
    data = images_for(site, None).data
    truth = [1, 0, 2, 2]
    changed = np.array(REFERENCE)
    changed[0, 2] = 9  # crate -> background
    report = compare_outputs(Fixed(REFERENCE), Fixed(changed), image_of(4, truth, data))
    assert [report.parts[part].miou_a for part in ("all", "old", "new")] == [1, 1, 1]
    assert report.parts["new"].miou_b == pytest.approx(1 / 2)
    assert report.parts["old"].miou_b == pytest.approx((1 / 2 + 1) / 2)
    assert report.parts["all"].miou_drop == pytest.approx(100 * (1 - (1 / 2 + 1 + 1 / 2) / 3))
    item = report.as_result().items[-1]
    assert item.key == "miou" and item.passed is False
    allowed = DEFAULTS["fp32"].model_copy(update={"miou_drop": 51})
    assert (
        compare_outputs(Fixed(REFERENCE), Fixed(changed), image_of(4, truth, data), allowed)
        .as_result()
        .items[-1]
        .passed
    )


def test_shrinking_keeps_the_largest():
    values = np.zeros((5, 7))
    values[4, 6] = 3
    small = shrink(values, 4)
    assert small.shape == (3, 4) and small[2, 3] == 3 and small.sum() == 3


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50"])
def test_torch_and_onnx_agree_after_two_steps(backbone):
    reference, images = models.checkpoint(models.model(backbone)), generated_images(2, models.SIZE)
    report = compare_outputs(reference, models.graph(models.folded(backbone)), images)
    assert report.as_result().ok, report.as_result().as_document()
    assert report.parts["all"].agreement.share == 1
    assert report.parts["all"].errors.max < 1e-5
    assert report.parts["new"].classes == ("new2",)
    assert report.images[0].size == models.SIZE
    assert sum(report.histogram[1]) == 2 * 5 * models.SIZE[0] * models.SIZE[1]
    assert report.worst.errors.shape == report.worst.differs.shape == report.worst.pixels.shape[:2]
    json.dumps(report.as_document(), allow_nan=False)


@pytest.mark.parametrize(
    "wrong", [models.dropped_dilation("head.paths.2"), models.norm_left_in("backbone.stages.1.0.conv1")]
)
def test_a_broken_fold_fails(wrong):
    images = generated_images(1, models.SIZE)
    result = compare_outputs(models.checkpoint(models.model()), models.checkpoint(wrong), images).as_result()
    assert not result.ok


def test_images_are_resized_to_what_both_take():
    report = compare_outputs(
        models.checkpoint(models.model()), models.graph(models.folded()), generated_images(1, (50, 100))
    )
    assert report.images[0].size == models.SIZE
    assert report.as_result().ok


@pytest.mark.parametrize("wild", [7, 255, -1, 2**31 - 1])
@pytest.mark.parametrize("logits", [True, False])
def test_a_mask_full_of_values_that_are_no_class_fails(tmp_path, wild, logits):
    site = make_site(tmp_path / "site")
    (site / "classes.txt").write_text("background\ncar\ncrate\n")
    garbage = Fixed(REFERENCE, mask=[[wild] * 4], only_mask=not logits)
    report = compare_outputs(Fixed(REFERENCE), garbage, image_of(4, [1, 0, 2, 2], images_for(site, None).data))
    everything = report.parts["all"]
    assert (everything.agreement.pixels, everything.agreement.differing, everything.agreement.tied) == (4, 4, 0)
    assert (everything.miou_a, everything.miou_b) == (1, 0)
    items = {item.key: item.passed for item in report.as_result().items}
    assert (items["agreement"], items["miou"]) == (False, False)
    assert sorted((swap.first, swap.second, swap.pixels) for swap in report.swaps) == [
        ("background", "no class", 1),
        ("car", "no class", 1),
        ("crate", "no class", 2),
    ]
    json.dumps(report.as_document(), allow_nan=False)


def test_values_that_are_no_class_differ_even_if_both_give_them():
    wild = Fixed(REFERENCE, mask=[[1, 0, 2, 9]], only_mask=True)
    agreement = compare_outputs(wild, wild, image_of(4)).parts["all"].agreement
    assert (agreement.pixels, agreement.differing) == (4, 1)


def test_no_pixel_compared_is_no_pass():
    first = Fixed(REFERENCE[:2], steps=[["background", "car"]], step=0, mask=[[0] * 4], only_mask=True)
    second = Fixed(REFERENCE[:2], steps=[["sky", "car"]], step=0, mask=[[0] * 4], only_mask=True)
    item = next(i for i in compare_outputs(first, second, image_of(4)).as_result().items if i.key == "agreement")
    assert item.passed is False and item.measured == "no pixel could be compared"


def test_masks_of_the_new_class_alone_leave_the_iou_of_two_steps_unmeasured(tmp_path):
    site = make_site(tmp_path / "site")
    (site / "classes.txt").write_text("background\ncrate\n")
    parent = Fixed(REFERENCE[:2], steps=STEPS[:1], step=0)
    data = images_for(site, None).data
    report = compare_outputs(parent, Fixed(REFERENCE), image_of(4, [0, 1, 1, 0], data))
    assert report.parts["all"].errors.max == 0
    item = report.as_result().items[-1]
    assert item.passed is None and item.measured == "not measured: there are no masks of these classes"
    report = compare_outputs(Fixed(REFERENCE), Fixed(REFERENCE), image_of(4, [0, 1, 1, 0], data))
    assert report.as_result().items[-1].passed is True, "the new class is measured where both have it"


CONFIDENT = Interface(shape=InputShape.of(*models.SIZE), outputs=("mask", "confidence"))


def items_of(graph, reference=None):
    images = generated_images(1, models.SIZE)
    result = compare_outputs(reference or models.checkpoint(models.model()), graph, images).as_result()
    return {item.key: item for item in result.items}


def test_confidences_are_compared_where_both_give_them():
    items = items_of(models.graph(models.folded(), CONFIDENT))
    assert items["confidence"].passed is True
    assert items["confidence"].detail["largest"] < 1e-5
    assert "confidence" not in items_of(models.graph(models.folded()))


def test_a_wrong_confidence_is_found_though_masks_and_logits_are_right():
    document = models.document(models.folded(), CONFIDENT)
    next(node for node in document.graph.node if node.op_type == "ReduceMax").op_type = "ReduceMin"
    network = models.folded()
    items = items_of(OnnxArtefact("graph", document, models.metadata(network), CONFIDENT))
    assert (items["confidence"].passed, items["agreement"].passed, items["error"].passed) == (False, True, True)
    assert items["confidence"].detail["mean"] > 0.01


class Uneven(OnnxArtefact):
    """A graph that forgets the mask of the last image of its largest batch."""

    def run(self, batch):
        outputs = super().run(batch)
        if len(batch) == self.interface.shape.batch.high:
            outputs["mask"][-1] = 0
        return outputs


@pytest.mark.parametrize("batch", ["2", "1:2:3"])
def test_every_row_of_every_batch_counts(batch):
    interface = Interface(shape=parse_shape("64x80", None, batch))
    network = models.folded()
    right = items_of(models.graph(network, interface))["batch"]
    assert right.passed is True and right.detail["agreement"] == 1
    assert right.detail["batches"] == ([2] if batch == "2" else [2, 3])
    uneven = Uneven("graph", models.document(network, interface), models.metadata(network), interface)
    items = items_of(uneven)
    assert items["batch"].passed is False and items["batch"].detail["agreement"] < 0.9
    assert items["agreement"].passed is True, "which looks at the first row"
    assert "batch" not in items_of(models.graph(network))


def test_a_batch_that_does_not_fit_into_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_BATCH_BYTES", 4 * 6 * 64 * 80 * 5 - 1)
    interface = Interface(shape=parse_shape("64x80", None, "1:2:3"))
    item = items_of(models.graph(models.folded(), interface))["batch"]
    assert item.passed is None and "not run" in item.measured


def test_one_class_everywhere_is_a_warning_and_no_failure():
    flat = Fixed([[9, 9, 9], [0, 0, 0], [0, 0, 0]])
    result = compare_outputs(flat, flat, image_of(3)).as_result()
    item = next(item for item in result.items if item.key == "one_class")
    assert result.ok and item.passed is None and item.warning and not item.not_checked
    assert item.measured == "WARNING: every pixel of all 1 images is background"
    both = compare_outputs(Fixed(REFERENCE), Fixed(REFERENCE), image_of(4)).as_result()
    assert "one_class" not in {item.key for item in both.items}
