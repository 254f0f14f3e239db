from dataclasses import replace
from pathlib import Path

from rcil.site.advice import Run, next_steps
from rcil.site.verdict import Finding, Verdict

RUN = Run(
    model=Path("old model.safetensors"),
    data=Path("site"),
    classes=("cone", "box"),
    output=Path("out/new"),
    method="rcil-plus",
    size=(180, 241),
    evaluated_on="val",
    images=12,
    groups=3,
    labelled={"cone": 7, "box": 2},
)
EXPORT = (
    "rcil-export out/new/model.safetensors -o out/new/deployed --size 192x256 --images site --previous "
    "'old model.safetensors'"
)


def advice(outcome, *findings, run=RUN):
    return next_steps(Verdict(outcome, "why", tuple(Finding(*finding, "text") for finding in findings)), run)


def test_an_accepted_model_is_exported():
    (step,) = advice("accepted")
    assert step["command"] == EXPORT


def test_an_uncertain_one_needs_other_images():
    label, again, anyway = advice("uncertain")
    assert "the split val" in label["text"] and "The 12 images show 3 different scenes." in label["text"]
    assert again["command"] == "rm out/new/report.json"
    assert anyway["command"] == EXPORT
    assert "a split val" in advice("uncertain", run=replace(RUN, evaluated_on="held-out images"))[0]["text"]


def test_a_forgotten_class():
    (step,) = advice("rejected", ("ball", "old", "broken"), ("cone", "new", "kept"))
    assert "To forget less of ball" in step["text"] and "--minutes" in step["text"]
    assert step["command"] == (
        "rcil add-class --from 'old model.safetensors' --data site --class cone --class box -o out/new-strict --strict"
    )


def test_a_class_that_was_not_learned():
    broken = ("cone", "new", "broken")
    (step,) = advice("rejected", broken, ("ball", "old", "kept"))
    assert "--minutes" in step["text"] and "--epochs" not in step["text"]
    assert "training images now: cone: 7" in step["text"] and step["command"] == "rcil data check site"
    _, free = advice("rejected", broken, run=replace(RUN, method="strict", options=("--scale", "0.5")))
    assert free["command"].endswith("-o out/new-free --scale 0.5") and "--strict" not in free["command"]


def test_background():
    (step,) = advice("rejected", ("background", "background", "broken"))
    assert "--max-background-drop" in step["text"] and not step["command"]
