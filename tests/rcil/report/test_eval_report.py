import base64
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.core.errors import ConfigError
from rcil.report.eval_report import Source, first_new, report_paths, write_report
from rcil.report.plots import Curve, Panel, class_bars, confusion_plot, step_curves

STEP0 = [("background", 0, 0.9), ("<b>&", 0, 0.6)]
STEP1 = [("background", 0, 0.8), ("<b>&", 0, 0.4), ("cone", 1, 0.3)]
SOURCE = Source(Path("my_site"), "val", 0.5)


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
    model = evaluated(1, STEP1, unknown=("tree",))
    paths = report_paths(tmp_path / "r.json")
    write_report(paths, [model], SOURCE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.confusion.png", "r.html", "r.json"]
    assert json.loads(paths.json.read_text()) == model.report.as_document()
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
    write_report(paths, [evaluated(0, STEP0)], Source(Path("my_site"), "val", 1.0, 512))
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
