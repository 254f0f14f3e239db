"""Conversions that were measured on the user's images."""

import cv2
import pytest
from exports import photographs
from mutants import MUTANTS
from mutants.exported import INTERFACES, WIDE, checkpoint_of

from rcil.checkpoint.file import load_for_inference
from rcil_export.convert import convert, deployed_metadata
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.verification.run import verify

FORMS = ("fp16", "qdq")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for index, image in enumerate(photographs(6, 48, 64)):
        cv2.imwrite(str(folder / f"{index}.png"), image)
    return folder


@pytest.fixture(scope="module")
def calibrated(site):
    """Graphs in fp16 and int8 that were measured on the images of `site`."""
    path = checkpoint_of("resnet18")
    model, metadata = load_for_inference(path)
    deployed = deployed_metadata(metadata, path)
    made = (convert(model, deployed, INTERFACES[form], calibrate=site, limits=WIDE) for form in FORMS)
    return dict(zip(FORMS, (converted.document for converted in made), strict=True))


def statuses(document, tmp_path, **options):
    write_onnx(tmp_path / "model.onnx", document)
    report = verify(tmp_path / "model.onnx", checkpoint_of("resnet18"), **options)
    return report, {claim.key: claim.status for claim in report.claims}


@pytest.mark.parametrize("form", FORMS)
def test_ranges_are_proved_with_the_images_alone(form, calibrated, site, tmp_path):
    report, without = statuses(calibrated[form], tmp_path)
    assert report.ok and without["rebuild"] == without["twin"] == "proved"
    assert without["ranges"] == "not proved"
    report, proved = statuses(calibrated[form], tmp_path, calibrate=site)
    assert report.ok and proved["ranges"] == "proved", report.differences


def test_scales_that_follow_a_wrong_record_take_the_images(calibrated, site, tmp_path):
    spoilt, named = MUTANTS["recorded_range_and_scales"].of(calibrated["qdq"])
    _, without = statuses(spoilt, tmp_path)
    assert without["ranges"] == "not proved"
    report, measured = statuses(spoilt, tmp_path, calibrate=site)
    assert measured["ranges"] == "wrong"
    assert any(named in difference.where for difference in report.differences)


def test_other_images_are_named(calibrated, site, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for index, image in enumerate(photographs(6, 48, 64, seed=1)):
        cv2.imwrite(str(other / f"{index}.png"), image)
    report, found = statuses(calibrated["fp16"], tmp_path, calibrate=other)
    assert found["ranges"] == "wrong"
    (difference,) = report.differences
    assert difference.where == "rcil.conversion.images" and "0.png" in difference.delivered
