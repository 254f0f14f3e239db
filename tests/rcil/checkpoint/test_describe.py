import pytest
from networks import small_arch
from rich.console import Console

from rcil.checkpoint.describe import as_document, as_tables
from rcil.checkpoint.header import Header, parse_metadata
from rcil.checkpoint.metadata import LineageEntry, Metadata, class_table


def metadata(**fields):
    return Metadata(architecture=small_arch(), classes=class_table([["background", "a"]]), **fields)


def shown(tmp_path, described, name="m"):
    console = Console(width=120, record=True, quiet=False)
    with console.capture() as captured:
        for table in as_tables(tmp_path / name, Header(described, {}, 0)):
            console.print(table)
    return captured.get()


def test_a_rejection_is_shown(tmp_path):
    text = shown(tmp_path, metadata(rejected="a dropped 12.3 points, limit 5"))
    assert "rejected" in text and "a dropped 12.3 points, limit 5" in text
    assert "rejected" not in shown(tmp_path, metadata())
    assert as_document(tmp_path, Header(metadata(rejected="why"), {}, 0))["rejected"] == "why"


def test_files_from_before_the_field_still_load(tmp_path):
    text = metadata().model_dump_json(exclude={"rejected"})
    assert "rejected" not in text
    assert parse_metadata(text, tmp_path).rejected is None


@pytest.mark.parametrize(("seed", "cell"), [(None, "-"), (0, "0"), (7, "7")])
def test_seeds(tmp_path, seed, cell):
    entry = LineageEntry(step=0, source="train", seed=seed)
    (line,) = [line for line in shown(tmp_path, metadata(lineage=(entry,))).splitlines() if "train" in line]
    assert line.split() == ["0", "train", "-", cell, "-"]


def test_paths_and_methods_are_no_markup(tmp_path):
    text = shown(tmp_path, metadata(method="[/mine]"), name="[run]_[/b].safetensors").replace("\n", "")
    assert "[run]_[/b].safetensors" in text and "[/mine]" in text
