import pytest
from networks import small_arch

from rcil.model.chain import chain_lines, chain_of, links_of
from rcil.model.metadata import LineageEntry, Metadata, class_table

NAMES = [["background", "a"], ["b"], ["c"]]
ENTRIES = (
    LineageEntry(step=1, source="import", metrics={"iou a": 60.0, "iou b": 50.0, "held_out_images": 3.0}),
    LineageEntry(step=2, source="rcil add-class", parent_sha256="1" * 64, metrics={"iou a": 58.5, "iou c": 40.0}),
    LineageEntry(step=2, source="fold", parent_sha256="2" * 64, metrics={"speed": 2.0}),
)


@pytest.fixture
def metadata():
    return Metadata(architecture=small_arch(), classes=class_table(NAMES), step=2, lineage=ENTRIES)


def test_an_import_brings_the_classes_of_its_steps_and_a_fold_none(metadata):
    assert [link.taught for link in links_of(metadata)] == [("background", "a", "b"), ("c",), ()]


def test_every_link_names_its_checkpoint(metadata):
    assert [link.sha256 for link in links_of(metadata, "3" * 64)] == ["1" * 64, "2" * 64, "3" * 64]


def test_metrics_are_sorted_by_what_they_measure(metadata):
    first, second, fold = links_of(metadata)
    assert (first.iou, first.images, first.lost) == ({"a": 60.0, "b": 50.0}, {"held out": 3}, {})
    assert second.lost == {"a": 1.5}, "the difference to the link before, where no drop is recorded"
    assert (fold.iou, fold.metrics) == ({}, {"speed": 2.0})


def test_a_delivered_folder_without_signatures(metadata, tmp_path):
    report = f'{{"model": {metadata.model_dump_json()}}}'
    (tmp_path / "report.json").write_text(report)
    text = "\n".join(chain_lines(chain_of(tmp_path)))
    assert "step 2: rcil add-class" in text and "taught      background, a, b" in text
    assert text.count("no statement was found") == 3


@pytest.mark.parametrize("mark", ["rejected", "uncertain"])
def test_what_the_checks_had_against_the_model_is_told(metadata, tmp_path, mark):
    marked = metadata.model_copy(update={mark: "too few images"})
    (tmp_path / "report.json").write_text(f'{{"model": {marked.model_dump_json()}}}')
    assert chain_lines(chain_of(tmp_path))[-1] == f"{mark}: too few images"
