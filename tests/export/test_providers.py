"""Why a provider of ONNX Runtime does not start, told from what the machine has."""

import onnx
import pytest

from rcil_export import providers
from rcil_export.providers import CPU, CUDA, TENSORRT, TINY_GRAPH, start_problem


@pytest.fixture(autouse=True)
def forgotten():
    start_problem.cache_clear()
    yield
    start_problem.cache_clear()


@pytest.fixture
def libraries(monkeypatch):
    """The libraries that can be loaded; a test changes the set."""
    found = {"libcuda.so.1", "libcudnn.so.9"}
    monkeypatch.setattr(providers, "_loads", lambda name: name in found)
    return found


def test_the_tiny_graph_is_a_graph():
    document = onnx.load_model_from_string(TINY_GRAPH)
    onnx.checker.check_model(document, full_check=True)
    assert [node.op_type for node in document.graph.node] == ["Relu"]
    assert [(opset.domain, opset.version) for opset in document.opset_import] == [("", 18)]
    assert start_problem(CPU) is None


def test_no_driver(libraries):
    libraries.clear()
    problem = start_problem(CUDA)
    assert problem is not None and "libcuda.so.1" in problem.reason and "driver" in problem.remedy


def test_no_libraries(libraries, monkeypatch, capsys):
    def preload_dlls():
        print("Failed to load libcublasLt.so.13: libcublasLt.so.13: cannot open shared object file")  # noqa: T201

    monkeypatch.setattr(providers.ort, "preload_dlls", preload_dlls, raising=False)
    problem = start_problem(CUDA)
    assert problem is not None and problem.reason == "the library libcublasLt.so.13 cannot be loaded"
    assert "pip install 'rcil[gpu]'" in problem.remedy
    assert capsys.readouterr().out == ""  # results that scripts read stay clean


def test_no_cudnn(libraries, monkeypatch):
    """`preload_dlls` says nothing about it, and the first convolution would fail."""
    monkeypatch.setattr(providers.ort, "preload_dlls", lambda: None, raising=False)
    libraries.remove("libcudnn.so.9")
    problem = start_problem(CUDA)
    assert problem is not None and "libcudnn.so.9" in problem.reason


def test_another_tensorrt(libraries, monkeypatch, tmp_path):
    (tmp_path / "capi").mkdir()
    library = tmp_path / "capi" / "libonnxruntime_providers_tensorrt.so"
    library.write_bytes(b"\x7fELF\0libnvonnxparser.so.10\0libnvinfer.so.10\0")
    monkeypatch.setattr(providers.ort, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(providers.ort, "preload_dlls", lambda: None, raising=False)
    libraries.add("libnvinfer.so.11")
    problem = start_problem(TENSORRT)
    assert problem is not None and "libnvinfer.so.10" in problem.reason and "tensorrt==10.*" in problem.remedy
    assert providers._linked_nvinfer(library) == "libnvinfer.so.10"


def test_all_is_there_and_it_still_does_not_start(libraries, monkeypatch):
    monkeypatch.setattr(providers.ort, "preload_dlls", lambda: None, raising=False)
    real = providers.ort.InferenceSession
    monkeypatch.setattr(providers.ort, "InferenceSession", lambda model, providers, **_: real(model, providers=[CPU]))
    problem = start_problem(CUDA)
    assert problem is not None and "started CPUExecutionProvider instead" in problem.reason


def test_each_provider_is_tried_once(libraries, monkeypatch):
    calls = []
    monkeypatch.setattr(providers, "_driver_problem", lambda: calls.append(1) or providers.StartProblem("no", "none"))
    assert start_problem(CUDA) == start_problem(CUDA) and calls == [1]
