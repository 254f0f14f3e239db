import pytest

import rcil_export.targets as module
from rcil.core.errors import ConfigError, MissingDependencyError
from rcil_export.engine.flavour import Flavour
from rcil_export.graph.interface import GraphOptions, make_interface
from rcil_export.targets import choose_targets

ANY = make_interface(GraphOptions("48x64"))


class Trt:
    __version__ = "9.9"


@pytest.fixture
def installed(monkeypatch):
    """Pretend that a flavour can build; returns a function that chooses which."""

    def choose(name):
        monkeypatch.setattr(module, "find_flavour", lambda *_: Flavour(name, Trt))
        monkeypatch.setattr(module, "choose_gpus", lambda *_: ("sm86", "sm89"))

    return choose


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rtx", "engine: TensorRT-RTX 9.9 builds it without a GPU, for sm86, sm89; `--target onnx` leaves it out"),
        ("classic", "engine: TensorRT 9.9 builds it on the GPU of this machine, for sm86, sm89; "),
    ],
)
def test_an_engine_is_built_where_one_can_be(installed, name, reason):
    installed(name)
    names, said = choose_targets("auto", ANY)
    assert names == ("onnx", "engine")
    assert said.startswith(reason) and "\n" not in said


def test_otherwise_the_reason_and_the_remedy_are_said(monkeypatch):
    def missing(*_):
        raise MissingDependencyError("no TensorRT is installed", "To build without a GPU: pip install it.")

    monkeypatch.setattr(module, "find_flavour", missing)
    chosen = choose_targets("auto", ANY)
    assert chosen == (("onnx",), "no engine: no TensorRT is installed. To build without a GPU: pip install it.")


def test_a_graph_for_cpus_has_no_engine(installed):
    installed("rtx")
    names, reason = choose_targets("auto", make_interface(GraphOptions("48x64", runtime="cpu")))
    assert names == ("onnx",)
    assert reason.startswith("no engine: the graph asked for is written for CPUs") and "--for any" in reason


def test_options_of_engines_ask_for_one(monkeypatch):
    monkeypatch.setattr(module, "find_flavour", lambda *_: pytest.fail("the checks of the request report it"))
    assert choose_targets("auto", ANY, gpus=("sm86",)).names == ("onnx", "engine")
    assert choose_targets("auto", ANY, flavour="classic").names == ("onnx", "engine")


def test_named_targets_are_made_and_nothing_else(monkeypatch):
    monkeypatch.setattr(module, "find_flavour", lambda *_: pytest.fail("no choice is left"))
    assert choose_targets("onnx", ANY) == (("onnx",), "")
    assert choose_targets("engine", ANY) == (("onnx", "engine"), "")
    for text in ("engin", ","):
        with pytest.raises(ConfigError, match="target"):
            choose_targets(text, ANY)
