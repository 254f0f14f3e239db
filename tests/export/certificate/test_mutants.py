"""Every mutant is rejected by `verify`, by the name of what is wrong; by `check` where images can show it."""

import pytest
from mutants import FORMS, MUTANTS
from mutants.exported import honest

from rcil_export.certificate.verify import verify
from rcil_export.onnx_file import write_onnx


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
