import json

import pytest
import yaml
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.core.errors import ConfigError
from rcil.presets import preset_names


def call(*arguments):
    return CliRunner().invoke(app, ["presets", *arguments], env={"COLUMNS": "100"}, catch_exceptions=True)


def test_the_list():
    shown = call().stdout
    assert all(name in shown for name in preset_names())
    line = next(line for line in shown.splitlines() if "voc-15-1-order-b" in line)
    assert line.split() == ["voc-15-1-order-b", "voc", "15-1", "overlapped,", "voc-b", "6", "21"]


def test_the_list_as_json():
    found = json.loads(call("--json").stdout)
    assert [preset["name"] for preset in found] == preset_names()
    assert found[0] == {
        "name": "ade-100-10",
        "dataset": "ade",
        "protocol": "100-10 overlapped",
        "steps": 6,
        "classes": 151,
    }


def test_show_prints_what_can_be_saved_as_a_task():
    shown = call("show", "cityscapes-11-5").stdout
    assert yaml.safe_load(shown)["protocol"] == {"domains": "11-5"}
    assert shown.startswith("# Cityscapes")


def test_show_knows_the_presets_of_rcil_classify():
    assert yaml.safe_load(call("show", "imagenet-100").stdout)["protocol"] == {"first": 50, "later_steps": 5}


def test_a_misspelt_name():
    error = call("show", "voc-15-1").exception
    assert isinstance(error, ConfigError)
    with pytest.raises(ConfigError, match="Did you mean 'voc-15-1-"):
        raise error
