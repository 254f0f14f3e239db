import pytest
from networks import small_arch

from rcil.cli.tables import print_model
from rcil.model.header import Header, parse_metadata
from rcil.model.metadata import LineageEntry, Metadata, class_table


def metadata(**fields):
    return Metadata(architecture=small_arch(), classes=class_table([["background", "a"]]), **fields)


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """Returns what `rcil info` prints about a model."""
    monkeypatch.setenv("COLUMNS", "120")

    def show(described, name="m"):
        print_model(tmp_path / name, Header(described, {}, 0))
        return capsys.readouterr().out

    return show


def test_a_rejection_is_shown(shown, tmp_path):
    text = shown(metadata(rejected="a dropped 12.3 points, limit 5"))
    assert "rejected" in text and "a dropped 12.3 points, limit 5" in text
    assert "rejected" not in shown(metadata())
    assert Header(metadata(rejected="why"), {}, 0).as_document(tmp_path)["rejected"] == "why"


def test_files_from_before_the_field_still_load(tmp_path):
    text = metadata().model_dump_json(exclude={"rejected"})
    assert "rejected" not in text
    assert parse_metadata(text, tmp_path).rejected is None


@pytest.mark.parametrize(("seed", "cell"), [(None, "-"), (0, "0"), (7, "7")])
def test_seeds(shown, seed, cell):
    entry = LineageEntry(step=0, source="train", seed=seed)
    (line,) = [line for line in shown(metadata(lineage=(entry,))).splitlines() if "train" in line]
    assert line.split() == ["0", "train", "-", cell, "-"]


@pytest.mark.parametrize(
    ("rc", "form"),
    [
        ({}, "two branches (drop_path, old branch not merged)"),
        ({"old": "merged", "frozen": True}, "two branches (drop_path, old branch merged, frozen)"),
        ({"old": "merged", "new": "merged"}, "two branches (drop_path, old branch merged, no norm in the new branch)"),
        (
            {"mix": "fixed", "norm_after": True, "stages": ("head", "stage4")},
            "two branches (fixed, old branch not merged, one norm after the sum, only in stage4 and head)",
        ),
        (None, "plain"),
    ],
)
def test_the_form_of_the_branches(shown, rc, form):
    described = Metadata(architecture=small_arch(rc=rc), classes=class_table([["background", "a"]]))
    assert f" {form} " in " ".join(shown(described).split())


def test_paths_and_methods_are_no_markup(shown):
    text = shown(metadata(method="[/mine]"), name="[run]_[/b].safetensors").replace("\n", "")
    assert "[run]_[/b].safetensors" in text and "[/mine]" in text
