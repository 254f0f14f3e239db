"""The commands around labelling tools."""

import json

import numpy as np
import pytest
from sites import make_site
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.cli.labelling import SOURCES, TARGETS
from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.data import converters, exporters


def call(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_the_names_in_help_are_those_of_the_library():
    assert set(SOURCES) == set(converters.FORMATS)
    assert set(TARGETS) == set(exporters.FORMATS)


@pytest.mark.parametrize("kind", TARGETS)
def test_out_and_back_without_naming_the_format(tmp_path, kind):
    site = make_site(tmp_path / "site", images=1)
    done = call("export", site, tmp_path / "out", "--to", kind)
    assert done.exit_code == 0, done.output
    assert "3 labels, images: 1 train, 1 val\nnext: " in done.stdout
    assert "{" not in done.stdout and str(tmp_path / "out") in done.stdout.split("next:")[1]
    assert call("convert", tmp_path / "out", tmp_path / "back").exit_code == 0
    mask = read_mask(site / "masks/train/train_0.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "back/masks/train/train_0.png"), mask)


def test_json_and_dry_runs(tmp_path):
    site = make_site(tmp_path / "site", images=1)
    dry = call("export", site, tmp_path / "out", "--to", "coco", "--dry-run", "--json")
    assert dry.exit_code == 0 and not (tmp_path / "out").exists()
    assert "2 images and their annotations for coco" in dry.stdout
    document = json.loads(call("export", site, tmp_path / "out", "--to", "coco", "--json").stdout)
    assert document["labels"] == ["ball", "cone", "ignore"] and document["images"] == {"train": 1, "val": 1}
    dry = call("convert", "auto", tmp_path / "out", tmp_path / "back", "--dry-run", "--json")
    assert dry.exit_code == 0 and "coco, 3 classes, 1 train, 1 val" in dry.stdout


def test_a_missing_target_is_not_taken_for_a_source(tmp_path):
    done = call("convert", "cvat", tmp_path)
    assert isinstance(done.exception, ConfigError) and "data convert cvat" in done.exception.hint
