import pytest
import torch

from rcil.checkpoint.file import load, save
from rcil.core.errors import ConfigError, RcilError
from rcil.core.masks import read_mask
from rcil.data.site import read_site
from rcil.evaluation.evaluate import evaluate
from rcil.inference import load as load_model
from rcil.model.metadata import class_table
from rcil.nn import begin_step
from rcil.site.refit import refit


@pytest.fixture
def new_model(old_model, tmp_path):
    """`old_model` after a step that taught cones nothing: its new row is random."""
    network, metadata = load(old_model)
    torch.manual_seed(1)
    student = begin_step(network, ["cone"])
    steps = [["background", "ball"], ["cone"]]
    path = tmp_path / "step1.safetensors"
    changes = {"architecture": student.arch, "classes": class_table(steps), "step": 1, "rejected": "finds no cones"}
    save(path, student, metadata.model_copy(update=changes))
    return path


def test_rows_of_complete_masks(new_model, site, tmp_path):
    output = tmp_path / "better.safetensors"
    document = refit(new_model, site, output, images=4)
    assert document["images"] == 4 and document["pixels"] > 0
    before, after = load_model(new_model), load_model(output)
    data = read_site(site, record=False)
    means = [evaluate(model, data, data.splits["val"]).all for model in (before, after)]
    assert means[1] > means[0]
    unchanged = [key for key in before.network.state_dict() if not key.startswith("classifier.")]
    for key in unchanged:
        assert torch.equal(before.network.state_dict()[key], after.network.state_dict()[key]), key
    assert after.metadata.rejected == "finds no cones", "nothing has judged it again"
    assert [entry.source for entry in after.metadata.lineage][-1] == "rcil refit"
    assert after.metadata.lineage[-1].config["split"] == "train"


def test_the_previous_model_stands_for_old_classes(new_model, old_model, cones, tmp_path):
    """Masks that name cones only are enough, if something predicts the balls."""
    with pytest.raises(RcilError, match="names ball") as error:
        refit(new_model, cones, tmp_path / "x.safetensors")
    assert "--previous" in error.value.hint
    output = tmp_path / "better.safetensors"
    refit(new_model, cones, output, previous=old_model)
    kept, fitted = load_model(old_model), load_model(output)
    data = read_site(cones, record=False)
    report = evaluate(fitted, data, data.splits["val"])
    assert next(c for c in report.classes if c.name == "cone").iou > 0.1
    assert not (tmp_path / "x.safetensors").exists()
    assert [c.name for c in fitted.classes] == [c.name for c in kept.classes] + ["cone"]


def test_a_refitted_model_has_not_been_judged(old_model, site, tmp_path):
    refit(old_model, site, tmp_path / "better.safetensors", images=2)
    metadata = load_model(tmp_path / "better.safetensors").metadata
    assert metadata.rejected is None and "refitted after it was judged" in metadata.uncertain


def test_what_cannot_be_refitted(new_model, old_model, site, tmp_path):
    with pytest.raises(ConfigError, match="not the first classes"):
        refit(old_model, site, tmp_path / "x.safetensors", previous=new_model)
    with pytest.raises(RcilError, match="no split 'test'"):
        refit(new_model, site, tmp_path / "x.safetensors", split="test")
    with pytest.raises(RcilError):
        refit(new_model, site, new_model)
    assert list(tmp_path.glob("x*")) == []


def test_unlabelled_background_is_ignored(new_model, site, tmp_path):
    counts = [
        refit(new_model, site, tmp_path / f"{void}.safetensors", images=2, void_background=void)["pixels"]
        for void in (False, True)
    ]
    mask = read_mask(read_site(site, record=False).splits["train"][0].mask)
    assert counts[1] / counts[0] == pytest.approx((mask != 0).mean(), abs=0.05)
