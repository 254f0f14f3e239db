import copy
import json
import math

import check_models as models
import pytest
import torch

from rcil.core.errors import RcilError
from rcil.core.files import sha256_of
from rcil.nn import fold
from rcil.nn.step import begin_step
from rcil_export.checks.layer_alignment import unit_paths
from rcil_export.checks.limits import DEFAULTS
from rcil_export.checks.lineage import compare_with_parent, layer_deltas, row_deltas
from rcil_export.images import generated_images

LAYER = "backbone.stages.2.0.conv1"


@pytest.fixture
def parent():
    return models.model(step=1)


@pytest.fixture
def child(parent):
    """The parent with one layer, one old row and one new class of its own."""
    student = begin_step(parent, ["new2"], rows="random", preserve=True)
    with torch.no_grad():
        student.get_submodule(LAYER).new.weight.mul_(1.5)
        weight, bias = student.classifier.rows()
        weight[1] *= 3
        bias[1] *= 3
        student.classifier.set_rows(weight, bias)
    return student.eval()


def test_only_the_layer_that_moved_is_reported(child, parent):
    deltas = {layer.layer: layer.delta for layer in layer_deltas(fold(child)[0], fold(parent)[0])}
    moved = {name: delta for name, delta in deltas.items() if delta > 1e-6}
    assert list(moved) == [LAYER]
    before = fold(parent)[0].get_submodule(LAYER)[0]
    weight, bias = before.weight.detach().double(), before.bias.detach().double()
    share = float(weight.norm() / (weight.norm() ** 2 + bias.norm() ** 2).sqrt())
    assert moved[LAYER] == pytest.approx(0.25 * share, rel=1e-4)  # half of 1.5 W + half of W, against W
    units = set(unit_paths(parent.arch)) - {"classifier", "head.project"}
    assert units | {"head.project.left", "head.project.right"} == set(deltas)


def test_rows_by_name(child, parent):
    rows = {row.name: row for row in row_deltas(child, parent)}
    assert {name: row.change for name, row in rows.items()} == {
        "background": "unchanged",
        "a": "changed",
        "b": "unchanged",
        "new1": "unchanged",
        "new2": "new",
    }
    assert rows["a"].delta == pytest.approx(2)
    assert math.isnan(rows["new2"].delta)
    assert {row.name: row.change for row in row_deltas(parent, child)}["new2"] == "gone"


def test_files_are_compared_and_the_drift_can_be_limited(child, parent, tmp_path):
    old = models.save_model(tmp_path / "step1.safetensors", parent)
    young = models.save_model(tmp_path / "step2.safetensors", child, sha256_of(old))
    images = generated_images(1, models.SIZE)
    report = compare_with_parent(young, old, images)
    items = {item.key: item for item in report.as_result().items}
    assert report.recorded and report.as_result().ok
    assert LAYER in items["weights"].measured
    assert "changed: a 200.0%" in items["rows"].measured and "new: new2" in items["rows"].measured
    drift = report.drift.parts["all"]
    assert drift.classes == ("background", "a", "b", "new1")
    assert drift.errors.p99 > 1e-3 and items["drift"].passed is None
    json.dumps(report.as_result().as_document(), allow_nan=False)
    strict = DEFAULTS["fp32"].model_copy(update={"drift": drift.errors.p99 / 2})
    assert not compare_with_parent(young, old, images, strict).as_result().ok
    loose = DEFAULTS["fp32"].model_copy(update={"drift": drift.errors.p99 * 2})
    assert compare_with_parent(young, old, images, loose).as_result().ok


def test_a_step_that_changed_nothing_drifts_nowhere(parent, tmp_path):
    same = begin_step(parent, ["new2"], rows="random", preserve=True).eval()
    old, young = (
        models.save_model(tmp_path / name, m) for name, m in (("a.safetensors", parent), ("b.safetensors", same))
    )
    report = compare_with_parent(young, old, generated_images(1, models.SIZE))
    assert not report.recorded
    assert max(layer.delta for layer in report.layers) < 1e-6
    assert report.drift.parts["all"].errors.max < 1e-5
    assert report.drift.parts["all"].agreement.share == 1


def test_another_network_is_no_parent(parent, tmp_path):
    old = models.save_model(tmp_path / "a.safetensors", copy.deepcopy(models.model("resnet50")))
    young = models.save_model(tmp_path / "b.safetensors", parent)
    with pytest.raises(RcilError, match="different networks: backbone"):
        compare_with_parent(young, old, generated_images(1, models.SIZE))
