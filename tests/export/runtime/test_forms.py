"""Which file may run where: forms, precisions, devices, and the choice of `auto`."""

import logging

import pytest
from served import FIXED, write_model

from rcil.core.errors import ConfigError
from rcil_export.graph.interface import Interface
from rcil_export.runtime import providers
from rcil_export.runtime.devices import PROVIDERS
from rcil_export.runtime.forms import check_engine_form, check_provider_form, choose_provider, needs_wide_sums
from rcil_export.runtime.providers import CPU, CUDA, TENSORRT, StartProblem, provider_of
from rcil_export.timing.bench import BenchOptions, bench
from rcil_export.timing.interleaved import LatencyOptions
from rcil_serve.runtime.backends import open_backend


def interface(**values):
    return Interface(shape=FIXED, **values)


@pytest.fixture
def cuda_starts(monkeypatch):
    """A machine on which the CUDA provider is there and starts."""
    monkeypatch.setattr(providers, "is_listed", lambda provider: True)
    monkeypatch.setattr(providers, "start_problem", lambda provider: None)


@pytest.fixture
def cuda_fails(monkeypatch):
    """A machine on which the CUDA provider is listed and does not start."""
    monkeypatch.setattr(providers, "is_listed", lambda provider: True)
    problem = StartProblem("the library libcublasLt.so.13 cannot be loaded", providers.INSTALL_GPU)
    monkeypatch.setattr(providers, "start_problem", lambda provider: problem if provider != CPU else None)


@pytest.mark.parametrize("provider", [CUDA, TENSORRT])
def test_the_form_for_cpus_is_refused_on_gpus(provider):
    with pytest.raises(ConfigError, match=f"m.onnx was exported with `--for cpu`.*wrong masks on {provider}") as caught:
        check_provider_form(interface(runtime="cpu"), provider, "m.onnx")
    assert "--for any" in caught.value.hint and "--device cpu" in caught.value.hint
    for runtime in ("any", "tensorrt"):
        check_provider_form(interface(runtime=runtime), provider, "m.onnx")
    check_provider_form(interface(runtime="cpu"), CPU, "m.onnx")


def test_bf16_is_refused_where_kernels_are_missing():
    with pytest.raises(
        ConfigError, match="CUDAExecutionProvider of ONNX Runtime has no LeakyRelu, Clip and ArgMax"
    ) as c:
        check_provider_form(interface(precision="bf16", opset=22), CUDA, "m.onnx")
    assert "fp16" in c.value.hint and "engine" in c.value.hint
    with pytest.raises(ConfigError, match="no Conv kernels"):
        check_provider_form(interface(precision="bf16", opset=22), CPU, "m.onnx")
    check_provider_form(interface(precision="bf16", opset=22), TENSORRT, "m.onnx")


def test_no_engine_is_built_from_the_form_for_cpus():
    with pytest.raises(ConfigError, match="is written for CPUs") as caught:
        check_engine_form(interface(runtime="cpu"), "m.onnx")
    assert "--for any" in caught.value.hint
    check_engine_form(interface(), "m.onnx")


def test_auto_takes_cuda_where_it_starts(cuda_starts):
    assert provider_of("auto") == CUDA
    assert choose_provider("auto", interface(), "m.onnx") == CUDA


def test_auto_falls_back_with_the_reason_and_the_remedy(cuda_fails, caplog):
    with caplog.at_level(logging.WARNING, "rcil"):
        assert provider_of("auto") == CPU
    for words in ("libcublasLt.so.13", "pip install 'rcil[gpu]'", "`--device cpu`"):
        assert words in caplog.text


def test_auto_says_nothing_where_no_gpu_is_expected(monkeypatch, caplog):
    monkeypatch.setattr(providers, "is_listed", lambda provider: provider == CPU)
    assert provider_of("auto") == CPU and not caplog.text


def test_auto_passes_over_a_gpu_that_the_file_is_not_for(cuda_starts, caplog):
    with caplog.at_level(logging.WARNING, "rcil"):
        assert choose_provider("auto", interface(runtime="cpu"), "m.onnx") == CPU
    assert "m.onnx was exported with `--for cpu`" in caplog.text and "--for any" in caplog.text
    with pytest.raises(ConfigError, match="wrong masks"):
        choose_provider("cuda", interface(runtime="cpu"), "m.onnx")
    with pytest.raises(ConfigError, match="bf16"):
        choose_provider("auto", interface(precision="bf16", opset=22), "m.onnx")


def test_serving_refuses_before_it_loads_the_graph(tmp_path, cuda_starts):
    path = write_model(tmp_path / "m.onnx", FIXED, runtime="cpu")
    with pytest.raises(ConfigError, match=r"m\.onnx was exported with `--for cpu`"):
        open_backend(path, "cuda")
    half = write_model(tmp_path / "half.onnx", FIXED, precision="bf16", opset=22)
    for device in ("auto", "cpu", "cuda"):
        with pytest.raises(ConfigError, match=r"half\.onnx is in bf16"):
            open_backend(half, device)


def test_serving_reports_where_it_really_runs(tmp_path, cuda_fails, caplog):
    backend = open_backend(write_model(tmp_path / "m.onnx", FIXED), "auto", 1)
    assert backend.device == "CPU" and "does not start, so the CPU is used" in caplog.text


def test_a_device_that_was_named_is_never_replaced(tmp_path, monkeypatch):
    path = write_model(tmp_path / "m.onnx", FIXED)
    problem = StartProblem("libcuda.so.1, the library of NVIDIA's driver, cannot be loaded", providers.INSTALL_DRIVER)
    monkeypatch.setattr("rcil_export.runtime.sessions.is_listed", lambda provider: True)
    monkeypatch.setattr("rcil_export.runtime.sessions.start_problem", lambda provider: problem)
    with pytest.raises(ConfigError, match=r"CUDAExecutionProvider does not start: libcuda\.so\.1") as caught:
        open_backend(path, "cuda")
    assert "driver" in caught.value.hint


def test_bench_refuses_too(tmp_path, monkeypatch):
    path = write_model(tmp_path / "m.onnx", FIXED, runtime="cpu")
    monkeypatch.setattr("rcil_export.timing.bench.check_providers", lambda names: None)
    timing = LatencyOptions(rounds=2, warmup=0, providers=(CUDA,))
    with pytest.raises(ConfigError, match="wrong masks on CUDAExecutionProvider"):
        bench([path], BenchOptions(timing=timing))
    report = bench([path], BenchOptions(timing=LatencyOptions(rounds=2, warmup=0)))
    assert [entry.name for entry in report.entries] == ["ONNX fp32, for cpu"]


def test_names_agree():
    assert tuple(PROVIDERS.values()) == (CPU, CUDA, TENSORRT)


@pytest.mark.parametrize(("runtime", "wide"), [("any", "1"), ("tensorrt", "1"), ("cpu", "")])
def test_int8_with_all_bits_does_not_overflow_on_older_cpus(tmp_path, runtime, wide):
    backend = open_backend(write_model(tmp_path / "m.onnx", FIXED, precision="int8", runtime=runtime), "cpu", 1)
    options = backend._session.get_session_options()
    assert (options.get_session_config_entry("session.x64quantprecision") if wide else "") == wide
    assert not needs_wide_sums(interface(runtime=runtime))
