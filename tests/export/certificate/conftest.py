"""Exports that several tests share, and fresh exports that are made once."""

import onnx
import pytest
from mutants.exported import checkpoint_of, folder

from rcil_export.certificate.verify_rebuild import Source
from rcil_export.interface import Interface
from rcil_export.run import Request, run_export
from rcil_export.shapes import InputShape


def copied(document):
    copy = onnx.ModelProto()
    copy.CopyFrom(document)
    return copy


@pytest.fixture
def exported_once(monkeypatch):
    """A checkpoint is exported again once per interface and process, not in every test."""
    made = exported_once.__dict__.setdefault("made", {})
    fresh = Source.exact

    def exact(source, interface):
        key = (source.path, interface.model_dump_json())
        if key not in made:
            made[key] = fresh(source, interface)
        return copied(made[key])

    monkeypatch.setattr(Source, "exact", exact)


@pytest.fixture(scope="session")
def delivered():
    """A folder with an engine, and a Triton repository, of one checkpoint."""
    pytest.importorskip("tensorrt_rtx")
    place = folder()
    interface = Interface(shape=InputShape.of(48, 64), runtime="tensorrt")
    request = Request(
        checkpoint_of("resnet18"),
        place / "folder",
        interface,
        targets=("onnx", "engine"),
        gpus=("sm86",),
        rounds=0,
        triton=place / "triton",
    )
    assert run_export(request).ok
    return place
