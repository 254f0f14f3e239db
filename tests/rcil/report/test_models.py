import math

import pytest

from rcil.checkpoint.file import load
from rcil.data.site import read_site
from rcil.errors import CheckpointError, ConfigError
from rcil.evaluate import evaluate
from rcil.evaluate_table import print_models
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
        alone = evaluate(*load(path), data, data.splits["val"], scale=0.5)
        assert model.report.as_document() == alone.as_document()
    assert models[0].report.unknown == ("cone",)


@pytest.mark.parametrize("scale", [0, -1, 1.5, math.nan])
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
    assert as_document([one]) == one.report.as_document()
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
    print_models([evaluated(1, STEP1)])
    assert "pixels" in capsys.readouterr().out
