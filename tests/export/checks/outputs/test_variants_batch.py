import check_models as models
import numpy as np
import pytest

from rcil_export.checks.artefact import OnnxArtefact
from rcil_export.checks.limits import DEFAULTS
from rcil_export.checks.outputs.variants import MAX_DIFFERENT, arrangements, batch_item, different_images
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.images import generated_images

IMAGES = generated_images(2, (48, 64))


class Mutant(OnnxArtefact):
    """A graph that changes the rows of its outputs."""

    change = staticmethod(lambda rows: rows)

    def run(self, batch):
        return {name: self.change(values) for name, values in super().run(batch).items()}


def artefact(batch, change=lambda rows: rows, **interface):
    asked = Interface(shape=parse_shape("48x64", None, batch), **interface)
    network = models.folded()
    found = Mutant("graph", models.document(network, asked), models.metadata(network), asked)
    found.change = change
    return found


def averaged(rows):
    return np.broadcast_to(rows.mean(0, keepdims=True), rows.shape).astype(rows.dtype)


def last_shifted(rows):
    return np.concatenate([rows[:-1], rows[-1:] + np.asarray(len(rows) > 1, rows.dtype)])


def first_twice(rows):
    return np.concatenate([rows[:1], rows[: len(rows) > 1], rows[2:]])


@pytest.mark.parametrize("batch", ["3", "1:2:5"])
def test_an_export_passes(batch):
    item = batch_item(artefact(batch), IMAGES, DEFAULTS["fp32"])
    assert item.passed is True and item.detail["agreement"] == 1


def test_single_images_have_no_batch():
    assert batch_item(artefact("1"), IMAGES, DEFAULTS["fp32"]) is None


@pytest.mark.parametrize("batch", ["3", "1:2:5"])
@pytest.mark.parametrize(
    ("change", "row"),
    [
        (lambda rows: rows[::-1], 0),
        (lambda rows: np.roll(rows, 1, axis=0), 0),
        (averaged, 0),
        (last_shifted, None),
        (first_twice, 1),
    ],
)
def test_rows_that_are_mixed_fail_and_are_named(batch, change, row):
    item = batch_item(artefact(batch, change), IMAGES, DEFAULTS["fp32"])
    assert item.passed is False
    assert f"in row {item.detail['row']} of a batch of" in item.measured
    assert row is None or item.detail["row"] == row


def test_a_batch_without_a_row_for_each_image_fails():
    item = batch_item(artefact("1:2:5", lambda rows: rows[:1]), IMAGES, DEFAULTS["fp32"])
    assert item.passed is False and "gives 1 x" in item.measured


def test_a_confidence_of_another_row_fails():
    graph = artefact("3", outputs=("mask", "confidence"))
    run = OnnxArtefact.run

    def swapped(batch):
        outputs = run(graph, batch)
        return outputs | {"confidence": outputs["confidence"][::-1]}

    graph.run = swapped
    assert batch_item(graph, IMAGES, DEFAULTS["fp32"].model_copy(update={"confidence": 1e-6})).passed is False


def test_images_of_a_batch_are_different():
    made = different_images(IMAGES, 9, InputShape.of(48, 64))
    assert len({image.tobytes() for image in made}) == 9
    assert {image.shape for image in made} == {(48, 64, 3)}


@pytest.mark.parametrize("count", [2, 3, 13, 14, 64, 169])
def test_no_two_rows_hold_the_same_image_in_both_orders(count):
    different = min(count, MAX_DIFFERENT)
    orders = arrangements(count, different)
    assert len(set(zip(*orders, strict=True))) == count
    assert all(0 <= at < different for order in orders for at in order)
    if count == different:
        assert orders[1] == orders[0][::-1]
