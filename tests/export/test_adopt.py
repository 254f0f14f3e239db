"""ONNX files of other programs: adopted, run, compared, and as the teacher of one of our networks."""

import json

import numpy as np
import onnxruntime
import pytest
import yaml
from foreign_graph import theirs
from onnx import helper
from sites import make_site
from typer.testing import CliRunner

import rcil
import rcil_export
import rcil_serve
from rcil.core.errors import CheckpointError, ConfigError
from rcil.core.images import read_rgb
from rcil.core.masks import read_mask
from rcil_export.adopt import GraphInput, adopt
from rcil_export.cli.app import app
from rcil_export.graph.onnx_file import read_onnx

NAMES = ["background", "ball", "cone"]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
GIVEN = GraphInput(names=NAMES, mean=MEAN, std=STD)


def scores_of(path, image):
    """What the original gives for an RGB image [H, W, 3]: [classes, h, w]."""
    pixels = ((image / 255 - np.array(MEAN)) / np.array(STD)).transpose(2, 0, 1)[None].astype(np.float32)
    return onnxruntime.InferenceSession(str(path)).run(["pred"], {"image": pixels})[0][0]


def photo(seed=3, size=(48, 64)):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("opset", [13, 18])
def test_the_masks_are_those_of_the_graph(tmp_path, softmax, opset):
    source = theirs(tmp_path / "theirs.onnx", softmax=softmax, opset=opset)
    adopt(source, tmp_path / "model.onnx", GIVEN)
    scores = scores_of(source, photo())
    shares = scores if softmax else np.exp(scores - scores.max(0)) / np.exp(scores - scores.max(0)).sum(0)
    with rcil_serve.open_model(tmp_path / "model.onnx", device="cpu") as model:
        result = model.predict(photo())
    assert np.mean(result.mask == scores.argmax(0)) > 0.999
    assert result.confidence == pytest.approx(float(shares.max(0).mean()), abs=1e-5)
    assert list(result.names) == NAMES


def test_small_logits_are_interpolated(tmp_path):
    source = theirs(tmp_path / "theirs.onnx", full=False)
    adopt(source, tmp_path / "model.onnx", GIVEN)
    small = scores_of(source, photo())
    assert small.shape[1:] == (24, 32)
    with rcil_serve.open_model(tmp_path / "model.onnx", device="cpu") as model:
        mask = model.predict(photo()).mask
    inside = mask[1::2, 1::2]  # pixels next to the centres of the cells
    assert np.mean(inside == small.argmax(0)) > 0.6
    assert mask.shape == (48, 64)


def test_the_file_describes_itself_and_repeats(tmp_path):
    source = theirs(tmp_path / "theirs.onnx", size=None)
    given = GraphInput(names=NAMES, mean=MEAN, std=STD, colour_order="BGR", size=(48, 64))
    for name in ("one", "two"):
        adopt(source, tmp_path / f"{name}.onnx", given)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    metadata = read_onnx(tmp_path / "one.onnx").metadata
    assert (metadata.mean, metadata.std, metadata.colour_order) == (MEAN, STD, "BGR")
    assert metadata.architecture.graph == "theirs.onnx"
    with rcil_serve.open_model(tmp_path / "one.onnx", device="cpu") as model:
        mask = model.predict(photo()).mask
    assert np.mean(mask == scores_of(source, photo()[..., ::-1]).argmax(0)) > 0.999


def test_check_compares_two_of_them(tmp_path):
    source = theirs(tmp_path / "theirs.onnx")
    adopt(source, tmp_path / "model.onnx", GIVEN)
    adopt(source, tmp_path / "other.onnx", GraphInput(names=NAMES, mean=(0.1, 0.1, 0.1), std=STD))
    same = rcil_export.check(tmp_path / "model.onnx", tmp_path / "model.onnx", max_images=2)
    assert same.ok
    other = rcil_export.check(tmp_path / "model.onnx", tmp_path / "other.onnx", max_images=2)
    assert not next(result for result in other.results if result.key == "outputs").ok


def test_a_teacher_by_its_labels(tmp_path):
    """Adopt, label the images of a site, and train one of our networks on the labels."""
    site = make_site(tmp_path / "site", images=4)
    size = read_rgb(next((site / "images").rglob("*.*"))).shape[:2]
    source = theirs(tmp_path / "theirs.onnx", size=None)
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    colours = ["--mean", "0.5,0.4,0.3", "--std", "0.2,0.3,0.25"]
    sides = f"{size[0] + 8}x{size[1]}"  # not the size of the images

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result

    model, labelled = tmp_path / "model.onnx", tmp_path / "labelled"
    run("adopt", source, "-o", model, "--names", tmp_path / "names.txt", "--size", sides, *colours)
    run("prelabel", "--from", model, "--images", site, "-o", labelled, "--min-confidence", "0", "--json")
    masks = sorted((labelled / "masks").rglob("*.png"))
    found = [read_mask(path) for path in masks]
    assert {mask.shape for mask in found} == {size}
    assert set(np.unique(found)) <= {0, 1, 2}
    assert json.loads((labelled / "prelabel.json").read_text())["model"] == str(model)
    task = {
        "recipe": "paper",
        "data": {"root": str(labelled)},
        "protocol": {"steps": [["ball", "cone"]]},
        "network": {"backbone": "resnet18", "width": 4, "head_width": 8},
        "training": {"epochs": [1, 1], "batch": 2, "crop": 32, "workers": 0},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task))
    results = rcil.train(tmp_path / "task.yaml", tmp_path / "run")
    assert results["steps"][0]["teaches"] == NAMES


class TestRefusals:
    def refused(self, source, match, given=GIVEN, error=ConfigError):
        output = source.with_name("model.onnx")
        with pytest.raises(error, match=match):
            adopt(source, output, given)
        assert not output.exists()

    def test_another_number_of_classes(self, tmp_path):
        self.refused(theirs(tmp_path / "theirs.onnx"), "and 2 classes are named", GraphInput(names=NAMES[:2]))

    def test_an_open_size(self, tmp_path):
        self.refused(theirs(tmp_path / "theirs.onnx", size=None), "several sizes")

    def test_another_size(self, tmp_path):
        self.refused(theirs(tmp_path / "theirs.onnx"), "takes 48x64 only", GraphInput(names=NAMES, size=(64, 64)))

    def test_an_unknown_output(self, tmp_path):
        self.refused(theirs(tmp_path / "theirs.onnx"), "no output 'x'", GraphInput(names=NAMES, logits="x"))

    def test_operators_of_others(self, tmp_path):
        extra = [helper.make_node("Fancy", ["a"], ["c"], name="odd", domain="com.example")]
        self.refused(theirs(tmp_path / "theirs.onnx", extra=extra), r"odd is a com\.example\.Fancy")

    def test_another_kind_of_file(self, tmp_path):
        (tmp_path / "theirs.onnx").write_text("no")
        self.refused(tmp_path / "theirs.onnx", "not an ONNX file", error=CheckpointError)

    def test_a_wrong_deviation(self, tmp_path):
        self.refused(theirs(tmp_path / "theirs.onnx"), "std", GraphInput(names=NAMES, std=(0.0, 1.0, 1.0)))
