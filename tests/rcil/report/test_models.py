import math

import cv2
import numpy as np
import pytest
from networks import small_arch
from sites import make_site

from rcil.checkpoint.file import save
from rcil.cli.tables import print_models
from rcil.core.errors import CheckpointError, ConfigError, MissingDependencyError
from rcil.data.site import read_site
from rcil.evaluation.evaluate import evaluate
from rcil.inference import Model, load
from rcil.labelling.prelabel import prelabel
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build
from rcil.report.models import as_document, evaluate_models, headings, histories, labelled_by_step, labels

STEP0 = [("background", 0, 0.9), ("<b>&", 0, 0.6)]
STEP1 = [("background", 0, 0.8), ("<b>&", 0, 0.4), ("cone", 1, 0.3)]


def test_models_come_in_the_order_of_their_steps(checkpoints, site):
    seen = []
    models = evaluate_models(checkpoints[::-1], site, "val", scale=0.5, progress=lambda *now: seen.append(now))
    assert [m.path for m in models] == checkpoints
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    data = read_site(site)
    for model, path in zip(models, checkpoints, strict=True):
        alone = evaluate(load(path), data, data.splits["val"], scale=0.5)
        assert model.report.as_document() == alone.as_document()
    assert models[0].report.unknown == ("cone",)


def test_a_larger_scale_and_a_site_that_stays_as_it_is(checkpoints, tmp_path):
    flat = make_site(tmp_path / "flat", splits=("",), images=8)
    before = sorted(path.name for path in flat.iterdir())
    (model,) = evaluate_models(checkpoints[:1], flat, "val", scale=1.5)
    data = read_site(flat, record=False)
    alone = evaluate(load(checkpoints[0]), data, data.splits["val"], scale=1.5)
    assert model.report.as_document() == alone.as_document()
    assert sorted(path.name for path in flat.iterdir()) == before


def test_centre_crops(checkpoints, site):
    (model,) = evaluate_models(checkpoints[:1], site, "val", test_crop=48)
    assert model.report.confusion.sum() == model.report.images * 48**2
    with pytest.raises(ConfigError, match="centre crop of 8 pixels is too small"):
        evaluate_models(checkpoints[:1], site, "val", test_crop=8)


def test_pictures_of_the_last_model(checkpoints, site):
    first, last = evaluate_models(checkpoints, site, "val", draw=True)
    assert first.pictures == ()
    assert len(last.pictures) == last.report.images == 2
    for picture in last.pictures:
        drawn = cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), cv2.IMREAD_COLOR)
        assert drawn.shape[1] == 4 * (3 * 96 + 8)
        assert "for cone: IoU " in picture.caption
    (cropped,) = evaluate_models(checkpoints[:1], site, "val", draw=True, test_crop=48)
    drawn = cv2.imdecode(np.frombuffer(cropped.pictures[0].jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape[1] == 4 * (3 * 48 + 8)


def test_a_model_with_compiled_norms_needs_no_compiled_package(site, tmp_path, monkeypatch):
    def missing():
        raise MissingDependencyError("not installed")

    monkeypatch.setattr("rcil.nn.units.norms.inplace_abn_classes", missing)
    names = [["background", "ball"]]
    plain = build(small_arch(norm="abs"), names)
    path = tmp_path / "inplace.safetensors"
    data = read_site(site)
    description = Metadata(architecture=plain.arch, classes=class_table(names))
    expected = evaluate(Model(plain.eval(), description), data, data.splits["val"]).as_document()
    plain.arch = plain.arch.replace(norm="inplace")
    save(path, plain, description)
    assert evaluate_models([path], site, "val")[0].report.as_document() == expected
    assert prelabel(path, site / "images" / "val", tmp_path / "labelled")["images"]


@pytest.mark.parametrize("scale", [0, -1, 4.5, math.nan])
def test_impossible_scales(checkpoints, site, scale):
    with pytest.raises(ConfigError, match="scale"):
        evaluate_models(checkpoints, site, "val", scale=scale)


def test_mistakes_are_found_before_anything_is_evaluated(checkpoints, site):
    def refuse(done, total):
        pytest.fail("an image was evaluated")

    with pytest.raises(CheckpointError, match="nowhere"):
        evaluate_models([checkpoints[0], site / "nowhere"], site, "val", progress=refuse)
    with pytest.raises(ConfigError, match="Did you mean 'val'"):
        evaluate_models(checkpoints, site, "vall", progress=refuse)


def test_documents(evaluated):
    one, two = evaluated(0, STEP0), evaluated(1, STEP1)
    assert as_document([one]) == {"scale": 1.0, **one.report.as_document()}
    document = as_document([one, two])
    assert [m["model"] for m in document["models"]] == ["run/step0.safetensors", "run/step1.safetensors"]
    assert [m["step"] for m in document["models"]] == [0, 1]
    assert document["models"][1]["miou"] == pytest.approx({"old": 0.6, "new": 0.3, "all": 0.5})


def test_labels(evaluated):
    steps = [evaluated(0, STEP0), evaluated(1, STEP1)]
    assert (labels(steps), headings(steps), labelled_by_step(steps)) == (["0", "1"], ["step 0", "step 1"], True)
    files = [evaluated(1, STEP1, "a.safetensors"), evaluated(1, STEP1, "b.safetensors")]
    assert (headings(files), labelled_by_step(files)) == (["a", "b"], False)
    twins = [evaluated(1, STEP1, "x/a.safetensors"), evaluated(1, STEP1, "y/a.safetensors")]
    assert headings(twins) == ["1: a", "2: a"]


def test_histories(evaluated):
    rows = histories([evaluated(0, STEP0), evaluated(1, STEP1)])
    assert [(c.name, c.step) for c in rows] == [("background", 0), ("<b>&", 0), ("cone", 1)]
    assert rows[1].iou == (0.6, 0.4)
    assert math.isnan(rows[2].iou[0])
    assert rows[2].iou[1] == 0.3


def test_terminal(evaluated, capsys):
    print_models([evaluated(0, STEP0), evaluated(1, STEP1)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["class", "step", "0", "step", "1"] in lines
    assert ["<b>&", "60.0", "40.0"] in lines
    assert ["cone", "-", "30.0"] in lines
    assert ["mean,", "old", "-", "60.0"] in lines
    print_models([evaluated(1, STEP1, unknown=("bin [empty]", "x [/empty]"))])
    out = capsys.readouterr().out
    assert "pixels" in out and "unknown to the model: bin [empty], x [/empty]" in out
