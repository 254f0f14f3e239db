import numpy as np
import pytest
from networks import small_arch

from rcil.data.types import ClassSpec
from rcil.model.features import FeatureStatistics
from rcil.model.metadata import Metadata, class_table
from rcil.site.rules import (
    amount_problems,
    background_problems,
    hidden_problems,
    model_problems,
    name_problems,
    new_classes,
    size_problems,
)

SITE, OLD = ["background", "ball", "cone"], ["background", "ball"]


def found(problems):
    return [(p.severity, p.place, p.message) for p in problems]


class TestNames:
    def test_a_new_class_of_the_site_is_fine(self):
        assert name_problems(["cone"], SITE, OLD) == []

    @pytest.mark.parametrize(
        ("wanted", "site", "old", "place", "text"),
        [
            (["cons"], SITE, OLD, "class cons", "Did you mean 'cone'?"),
            (["ball"], SITE, OLD, "class ball", "is already a class of the model"),
            (["background"], SITE, OLD, "class background", "is the background"),
            (["Background"], ["void", "Background"], OLD, "class Background", "is the background"),
            (["cone", "cone"], SITE, OLD, "class cone", "named twice"),
            (["cone"], ["ball", "cone"], OLD, "class ball", "first class of the site, which must be background"),
            (["cone"], SITE, ["background", *map(str, range(254))], "model", "exceed the limit of 255"),
        ],
    )
    def test_errors(self, wanted, site, old, place, text):
        (error,) = [p for p in found(name_problems(wanted, site, old)) if p[0] == "error"]
        assert error[1] == place
        assert text in error[2]

    def test_a_twin_in_other_case_is_a_warning(self):
        (warning,) = found(name_problems(["Ball"], ["background", "Ball"], OLD))
        assert warning == ("warning", "class Ball", "the model has a class 'ball', which differs in case only")

    def test_other_classes_of_the_site_are_background_with_a_suggestion(self):
        warnings = found(name_problems(["cone"], [*SITE, "Balls", "zebra"], OLD))
        assert [w[:2] for w in warnings] == [("warning", "class Balls"), ("warning", "class zebra")]
        assert warnings[0][2].endswith("its pixels count as background. Did you mean 'ball'?")
        assert warnings[1][2].endswith("its pixels count as background")


class TestColours:
    METADATA = Metadata(architecture=small_arch(), classes=class_table([OLD]), step=3)

    def test_the_colour_of_the_site(self):
        specs = [ClassSpec("background", (0, 0, 0)), ClassSpec("cone", (1, 2, 3))]
        (info,), problems = new_classes(["cone"], specs, self.METADATA)
        assert (info.name, info.id, info.colour, info.step) == ("cone", 2, (1, 2, 3), 4)
        assert problems == []

    def test_a_colour_that_is_taken_gives_another(self):
        ball = self.METADATA.classes[1].colour
        specs = [ClassSpec("background", (0, 0, 0)), ClassSpec("cone", ball), ClassSpec("box", (0, 0, 0))]
        infos, problems = new_classes(["cone", "box"], specs, self.METADATA)
        assert len({c.colour for c in (*self.METADATA.classes, *infos)}) == 4
        assert [p.place for p in problems] == ["class cone", "class box"]
        assert [c.id for c in infos] == [2, 3]


@pytest.mark.parametrize(
    ("amount", "severity"),
    [((0, 0), "error"), ((1, 9999), "error"), ((2, 9999), "warning"), ((9, 999), "warning"), ((5, 1000), None)],
)
def test_amounts(amount, severity):
    problems = amount_problems({"cone": amount})
    assert [p.severity for p in problems] == ([severity] if severity else [])
    assert all(f"{amount[1]} pixels in {amount[0]} training images" in p.message for p in problems)


def test_sizes():
    assert size_problems([(300, 400)], 512, 1.0) == []
    (small,) = size_problems([(300, 400), (600, 800)], 512, 0.5)
    assert (small.severity, small.place) == ("warning", "1 of 2 images")
    assert "crop of 512" in small.message
    (tiny,) = size_problems([(31, 400), (600, 800)], 512, 1.0)
    assert tiny.message == "smaller than 32 pixels"
    (absurd,) = size_problems([(180, 240)], 4096, 1.0)
    assert absurd.severity == "error" and "largest image (240 pixels at scale 1)" in absurd.message
    assert size_problems([], 4096, 1.0) == []


def test_background_matters_to_fine_tuning_alone():
    assert background_problems({"ball": 0.25}, "rcil") == []
    assert background_problems({}, "fine-tuning") == []
    (warning,) = background_problems({"ball": 0.25}, "fine-tuning")
    assert "ball 25.0%" in warning.message


class TestModels:
    def test_a_folded_model_is_a_start_like_any_other(self, tmp_path):
        metadata = Metadata(architecture=small_arch(rc=None, folded=True), classes=class_table([OLD]))
        assert model_problems(tmp_path / "folded.safetensors", metadata) == []

    def test_a_backbone_has_no_classes(self, tmp_path):
        (error,) = model_problems(tmp_path, Metadata(architecture=small_arch(rc=None), kind="backbone"))
        assert error.severity == "error" and "rcil train" in error.message

    def test_a_rejected_model_is_a_warning(self, tmp_path):
        metadata = Metadata(architecture=small_arch(), classes=class_table([OLD]), rejected="car dropped 9 points")
        (warning,) = model_problems(tmp_path, metadata)
        assert warning.severity == "warning" and "car dropped 9 points" in warning.message


def test_hidden_classes_without_statistics_are_a_warning(described):
    metadata = described(["background", "ball", "cone"])
    (problem,) = hidden_problems(["ball"], 2, metadata, "rcil-plus")
    assert problem.severity == "warning" and "ball" in problem.message and "rcil refit" in problem.message
    assert hidden_problems(["ball"], 3, metadata, "rcil-plus") == []
    assert hidden_problems(["ball"], 2, metadata, "strict") == []
    values = (np.ones((3, 2), np.float32), np.ones((3, 2), np.float32), np.eye(2, dtype=np.float32))
    known = metadata.model_copy(update={"features": FeatureStatistics.of([9, 9, 9], *values)})
    assert hidden_problems(["ball", "cone"], 2, known, "rcil-plus") == []
