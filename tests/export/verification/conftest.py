"""Exports that several tests share, and fresh exports that are made once."""

import pytest
from mutants.editing import copied
from mutants.exported import checkpoint_of, folder

from rcil_export.engine.build import build_engine
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape
from rcil_export.request import Request
from rcil_export.run import run_export
from rcil_export.verification import engine as verify_engine
from rcil_export.verification import onnx_model as verify_twin
from rcil_export.verification.rebuild import Source

MADE = {}
"""What is made once per process, by what makes it."""


def once(monkeypatch, owner, name, key):
    """Let a function be called once per key and process; it gives a graph, of which everyone gets a copy."""
    made = MADE.setdefault(name, {})
    fresh = getattr(owner, name)

    def call(*args):
        found = key(*args)
        if found not in made:
            made[found] = fresh(*args)
        return copied(made[found])

    monkeypatch.setattr(owner, name, call)


@pytest.fixture
def exported_once(monkeypatch):
    """Fresh exports and plain networks are made once per interface, not in every test."""
    once(monkeypatch, Source, "exact", lambda source, interface: (source.path, interface.model_dump_json()))
    once(
        monkeypatch,
        verify_twin,
        "twin_document",
        lambda path, metadata, interface: (path, metadata.model_dump_json(), interface.model_dump_json()),
    )


@pytest.fixture
def built_once(monkeypatch):
    """Engines are built once per graph and options, not in every test."""
    made = MADE.setdefault("engines", {})

    def build(onnx_file, engine, options, listen=None):
        key = (onnx_file.read_bytes(), repr(options))
        if key not in made:
            sidecar = build_engine(onnx_file, engine, options, listen)
            made[key] = sidecar, engine.read_bytes()
        engine.write_bytes(made[key][1])
        return made[key][0]

    monkeypatch.setattr(verify_engine, "build_engine", build)


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
        name="yard",
    )
    assert run_export(request).ok
    return place
