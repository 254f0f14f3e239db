"""Every mutant is rejected by `verify`, by the name of what is wrong; by `check` where images can show it."""

import re
from pathlib import Path

import pytest
from mutants import DELIVERIES, FOLDS, FORMS, MUTANTS, table
from mutants.exported import honest

from rcil.core.errors import RcilError
from rcil_export.check_files import check_files
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.verification.run import verify

PAGE = Path(__file__).parents[3] / "docs" / "export.md"


def cases(kinds):
    """Every kind in the first form that it applies to; in the others, slowly."""
    for name, mutant in kinds:
        for form in mutant.forms:
            yield pytest.param(name, form, marks=() if form == mutant.forms[0] else pytest.mark.slow)


def written(document, tmp_path):
    path = tmp_path / "model.onnx"
    write_onnx(path, document)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_an_honest_file_is_proved(form, tmp_path):
    report = verify(written(honest(form).document, tmp_path), honest(form).checkpoint)
    assert report.ok, report.differences
    assert {claim.key for claim in report.claims if claim.status != "proved"} <= {"kept"}


@pytest.mark.parametrize(("name", "form"), list(cases(MUTANTS.items())))
@pytest.mark.usefixtures("exported_once")
def test_verify_rejects_and_names(name, form, tmp_path):
    spoilt, named = MUTANTS[name].of(honest(form).document)
    report = verify(written(spoilt, tmp_path), honest(form).checkpoint)
    assert not report.ok
    assert any(named in difference.where for difference in report.differences), (named, report.differences)


def told_as(named):
    """The ways in which `check` may name what `verify` names: a field, a value, a node, or its layer."""
    word = re.split(r" \(|: ", named.removeprefix("output ").removeprefix("input "))[0].removeprefix("rcil.")
    layer = re.sub(r"(\.groups)?(\.\d+)?\.(weight|bias)$", "", word)
    return {word, word.partition("[")[0] if word.endswith("]") else word, layer, re.sub(r"(\.\d+)?\.\w+$", "", word)}


def failures(checkpoint, path):
    """What `check` has against a file, as text; empty if nothing."""
    try:
        results, _ = check_files(checkpoint, path, max_images=2)
    except RcilError as error:
        return error.message
    failed = [item for result in results for item in result.items if item.passed is False]
    return "\n".join(f"{item.key}: {item.measured} {item.detail}" for item in failed)


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=() if form == "fp32" else pytest.mark.slow) for form in FORMS]
)
def test_check_accepts_an_honest_file(form, tmp_path):
    assert failures(honest(form).checkpoint, written(honest(form).document, tmp_path)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [(name, form) for name, mutant in MUTANTS.items() for form in mutant.forms])
def test_check_rejects_what_it_can_see(name, form, tmp_path):
    mutant = MUTANTS[name]
    spoilt, named = mutant.of(honest(form).document)
    found = failures(honest(form).checkpoint, written(spoilt, tmp_path))
    assert bool(found) == mutant.seen_by_check(form), found
    if found:
        names = told_as(named) | ({mutant.seen_as} if mutant.seen_as else set())
        assert any(word in found for word in names), (names, found)


@pytest.mark.parametrize(
    "name", ["halved_conv", "bias", "rows_and_names", "described_step", "resize_target", "called_int8"]
)
def test_check_rejects_some_kinds(name, tmp_path):
    """The others take long."""
    test_check_rejects_what_it_can_see(name, "fp32", tmp_path)


def test_the_page_has_the_table():
    """`python -m tools.mutants --write` puts it there."""
    assert table.in_page(PAGE.read_text(encoding="utf-8")) == table.table()


def test_there_are_kinds_of_every_family():
    assert len(MUTANTS) + len(FOLDS) + len(DELIVERIES) >= 100
    assert {mutant.family for mutant in MUTANTS.values()} == set(table.TITLES)
