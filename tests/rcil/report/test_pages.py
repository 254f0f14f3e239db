import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from sites import make_site
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.core.errors import ConfigError
from rcil.report.pages import Source, comparison_curves, first_new, report_paths, write_comparison, write_report
from rcil.report.plots import Curve, Panel, class_bars, confusion_plot, step_curves
from rcil.tasks.load import load_task
from rcil.training import compare as module
from rcil.training.compare import compare

STEP0 = [("background", 0, 0.9), ("<b>&", 0, 0.6)]
STEP1 = [("background", 0, 0.8), ("<b>&", 0, 0.4), ("cone", 1, 0.3)]
SOURCE = Source(Path("my_site"), "val")


def pictures(page):
    return [base64.b64decode(reference.removeprefix("data:image/png;base64,")) for reference in page.references]


def test_where_the_parts_go():
    paths = report_paths(Path("out/report.json"))
    assert paths.page == Path("out/report.html")
    assert paths.confusion == Path("out/report.confusion.png")
    assert report_paths(Path("out/v1.2")).page == Path("out/v1.2.html")
    for name in ("report.html", "report.PNG"):
        with pytest.raises(ConfigError, match=r"-o report\.json"):
            report_paths(Path(name))


def test_first_row_of_the_latest_step(evaluated):
    assert first_new(evaluated(0, STEP0)) == 0
    assert first_new(evaluated(1, STEP1)) == 2


def test_one_model(parse, evaluated, tmp_path):
    model = replace(evaluated(1, STEP1, unknown=("tree",)), scale=0.5)
    paths = report_paths(tmp_path / "r.json")
    write_report(paths, [model], SOURCE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.confusion.png", "r.html", "r.json"]
    assert json.loads(paths.json.read_text()) == {"scale": 0.5, **model.report.as_document()}
    names = ["background", "<b>&", "cone"]
    assert paths.confusion.read_bytes() == confusion_plot(model.report.confusion, names, 2)
    page = parse(paths.page.read_text())
    assert page.rows == [
        ["model", "step", "classes", "old", "new", "all", "pixel accuracy"],
        ["run/step1.safetensors", "1", "3", "60.0", "30.0", "50.0", "75.0"],
        ["class", "since step", "IoU", "pixels", "of all, %"],
        ["background", "0", "80.0", "100", "16.7"],
        ["<b>&", "0", "40.0", "200", "33.3"],
        ["cone", "1", "30.0", "300", "50.0"],
    ]
    assert pictures(page) == [class_bars(names, None, [0.8, 0.4, 0.3]), paths.confusion.read_bytes()]
    for text in ("my_site, split val, 4 images, seen at scale 0.5", "<b>&, cone", "step 1", "tree", "resnet18", "rcil"):
        assert text in page.text


def test_centre_crops_are_stated(parse, evaluated, tmp_path):
    paths = report_paths(tmp_path / "r.json")
    write_report(paths, [evaluated(0, STEP0)], Source(Path("my_site"), "val", 512))
    assert "seen at scale 1, centre crops of 512 pixels" in parse(paths.page.read_text()).text


def test_several_models(parse, evaluated, tmp_path):
    models = [evaluated(0, STEP0), evaluated(1, STEP1)]
    paths = report_paths(tmp_path / "r.json")
    write_report(paths, models, SOURCE)
    page = parse(paths.page.read_text())
    assert page.rows[1:3] == [
        ["run/step0.safetensors", "0", "2", "–", "75.0", "75.0", "75.0"],
        ["run/step1.safetensors", "1", "3", "60.0", "30.0", "50.0", "75.0"],
    ]
    assert page.rows[3:] == [
        ["class", "since step", "step 0", "step 1", "pixels", "of all, %"],
        ["background", "0", "90.0", "80.0", "100", "16.7"],
        ["<b>&", "0", "60.0", "40.0", "200", "33.3"],
        ["cone", "1", "–", "30.0", "300", "50.0"],
    ]
    curves, bars, confusion = pictures(page)
    means = {"old classes": [None, 0.6], "new classes": [0.75, 0.3], "all classes": [0.75, 0.5]}
    panel = Panel("", [Curve(name, values) for name, values in means.items()])
    assert curves == step_curves([panel], ["0", "1"], title="Mean IoU of each model")
    labels = ("earliest model", "latest model")
    assert bars == class_bars(["background", "<b>&", "cone"], [0.9, 0.6, None], [0.8, 0.4, 0.3], labels)
    assert confusion == paths.confusion.read_bytes()
    assert len(json.loads(paths.json.read_text())["models"]) == 2


def test_command_line(checkpoints, site, tmp_path):
    step0, step1 = map(str, checkpoints)
    options = ["--data", str(site), "--scale", "0.5", "--json"]
    one = CliRunner().invoke(app, ["eval", step0, *options, "-o", str(tmp_path / "one.json")])
    assert one.exit_code == 0, one.output
    document = json.loads(one.stdout)
    assert document == json.loads((tmp_path / "one.json").read_text())
    assert "models" not in document
    assert (tmp_path / "one.html").is_file()
    two = CliRunner().invoke(app, ["eval", step1, step0, *options])
    first, second = json.loads(two.stdout)["models"]
    assert first == {"model": step0, "step": 0, **document}
    assert second["model"] == step1
    refused = CliRunner().invoke(app, ["eval", step0, *options, "-o", str(tmp_path / "two.html")])
    assert isinstance(refused.exception, ConfigError)
    assert not (tmp_path / "two.html").exists()


IOU = {
    "mib": {0: [{"background": 0.8, "ball": 0.6}, {"background": 0.7, "ball": 0.5, "cone": 0.1}]},
    "rcil": {0: [{"background": 0.9, "ball": 0.7}, {"background": 0.8, "ball": 0.6, "cone": 0.2}]},
    "joint": {0: [{"background": 0.9, "ball": 0.8, "cone": 0.7}]},
}


def cell(mean, sd=0.0, seeds=1):
    return {"mean": mean, "sd": sd, "seeds": seeds}


def groups(first, later, everything):
    return {"first": cell(first), "later": cell(later), "all": cell(everything)}


DOCUMENT = {
    "task": "<b>& $t$",
    "seeds": 1,
    "steps": [["background", "ball"], ["cone"]],
    "rows": {
        "mib": {**groups(0.6, 0.1, 0.4), "curve": [groups(0.7, None, 0.7), groups(0.6, 0.1, 0.4)]},
        "joint": {**groups(0.8, 0.7, 0.75), "curve": [groups(0.8, 0.7, 0.75)]},
    },
}


@pytest.fixture
def task(tmp_path):
    make_site(tmp_path / "site", images=10)
    protocol = {"steps": [["ball"], ["cone"]]}
    document = {"name": "tiny", "recipe": "paper", "data": {"root": "site"}, "protocol": protocol}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(document))
    return load_task(tmp_path / "task.yaml")


def test_curves_over_seeds(parse, task, tmp_path, monkeypatch):
    """The second seed is 0.2 better everywhere."""

    def results(cell, output, **_):
        steps = IOU[cell.method.name][0]
        return {"steps": [{"classes": [{"name": n, "iou": v + 0.2 * cell.seed} for n, v in s.items()]} for s in steps]}

    monkeypatch.setattr(module, "run_task", results)
    document = compare(task, ["mib", "rcil", "joint"], 2, tmp_path / "table")
    assert document["steps"] == [["background", "ball"], ["cone"]]
    row = document["rows"]["mib"]
    assert [step["first"]["mean"] for step in row["curve"]] == pytest.approx([0.8, 0.7])
    assert row["curve"][0]["later"] == {"mean": None, "sd": None, "seeds": 0}
    assert row["curve"][1]["later"] == pytest.approx({"mean": 0.2, "sd": 0.2 / 2**0.5, "seeds": 2})
    assert [step["all"]["mean"] for step in row["curve"]] == pytest.approx([0.8, 1.3 / 3 + 0.1])
    assert {column: row[column] for column in ("first", "later", "all")} == row["curve"][-1]
    assert len(document["rows"]["joint"]["curve"]) == 1
    assert document == json.loads((tmp_path / "table" / "compare.json").read_text())
    assert (tmp_path / "table" / "curves.png").read_bytes() == comparison_curves(document)
    page = parse((tmp_path / "table" / "compare.html").read_text())
    assert ["mib", "70.0 ± 14.1", "20.0 ± 14.1", "53.3 ± 14.1"] in page.rows


def test_page(parse, tmp_path):
    write_comparison(tmp_path, DOCUMENT)
    page = parse((tmp_path / "compare.html").read_text())
    assert page.rows[:3] == [
        ["method", "classes of step 0", "later classes", "all classes"],
        ["mib", "60.0", "10.0", "40.0"],
        ["joint", "80.0", "70.0", "75.0"],
    ]
    assert page.rows[6:9] == [["method", "step 0", "step 1"], ["mib", "-", "10.0"], ["joint", "", "70.0"]]
    assert "Methods on <b>& $t$" in page.text
    assert all(reference.startswith("data:image/png") for reference in page.references)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["compare.html", "curves.png"]


def test_joint_training_is_a_level():
    joint = {"first": 0.8, "later": 0.7, "all": 0.75}
    mib = {"first": [0.7, 0.6], "later": [None, 0.1], "all": [0.7, 0.4]}
    titles = {"first": "classes of step 0", "later": "later classes", "all": "all classes"}
    panels = [Panel(titles[g], [Curve("mib", mib[g], [0, 0])], [Curve("joint", [joint[g]], [0])]) for g in titles]
    assert comparison_curves(DOCUMENT) == step_curves(panels, ["0", "1"], title="<b>& $t$: mean IoU over steps")


def test_groups_without_classes_are_left_out(parse, tmp_path):
    """Steps that add domains have no later classes."""
    rows = {"mib": {**groups(0.6, None, 0.6), "curve": [groups(0.7, None, 0.7), groups(0.6, None, 0.6)]}}
    write_comparison(tmp_path, {**DOCUMENT, "rows": rows})
    page = parse((tmp_path / "compare.html").read_text())
    assert "After each step, all classes" in page.text
    assert "After each step, later classes" not in page.text


def test_joint_training_alone(tmp_path):
    write_comparison(tmp_path, {**DOCUMENT, "rows": {"joint": DOCUMENT["rows"]["joint"]}})
    assert (tmp_path / "curves.png").stat().st_size > 1000
