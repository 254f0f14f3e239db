import json

import pytest
import yaml
from sites import make_site

from rcil.report.compare_report import comparison_curves, write_comparison
from rcil.report.plots import Curve, Panel, step_curves
from rcil.training import compare as module
from rcil.training.compare import compare
from rcil.training.task import load_task

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
    assert page.rows[6:9] == [
        ["method", "step 0", "step 1"],
        ["mib", "-", "10.0"],
        ["joint", "", "70.0"],
    ]
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
