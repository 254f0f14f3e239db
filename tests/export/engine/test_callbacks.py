import signal
import threading

import pytest

from rcil_export.engine.callbacks import BuildWatch, collected_errors, interrupt_stops, is_echo, logger_of


@pytest.fixture
def trt():
    return pytest.importorskip("tensorrt_rtx")


def test_progress_is_passed_on():
    seen = []
    watch = BuildWatch(lambda *event: seen.append(event))
    watch.phase_start("outer", None, 2)
    watch.phase_start("inner", None, 3)
    assert watch.step_complete("inner", 0)
    watch.phase_finish("inner")
    assert watch.step_complete("outer", 0)
    assert watch.step_complete("outer", 1)
    watch.phase_finish("outer")
    inner = [("inner", 0, 3), ("inner", 1, 3), ("inner", 3, 3)]
    assert seen == [("outer", 0, 2), *inner, ("outer", 1, 2), ("outer", 2, 2)]


def test_without_a_listener_it_goes_on():
    watch = BuildWatch(None)
    watch.phase_start("outer", None, 1)
    assert watch.step_complete("outer", 0)


def test_an_error_of_the_listener_stops_the_build_and_is_kept():
    calls = []

    def fail(*event):
        calls.append(event)
        raise ValueError("broken display")

    watch = BuildWatch(fail)
    watch.phase_start("outer", None, 2)
    assert not watch.step_complete("outer", 0)
    assert isinstance(watch.stopped_by, ValueError)
    assert len(calls) == 1


def test_ctrl_c_is_a_request_inside_and_an_interrupt_outside():
    watch = BuildWatch(None)
    with interrupt_stops(watch):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert not watch.step_complete("outer", 0)
    assert isinstance(watch.stopped_by, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    inside = []

    def work():
        with interrupt_stops(BuildWatch(None)):
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


ECHO = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at /_src/common/dispatch/"
    "checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient for CUDA runtime version))"
)
REAL = (
    "IBuilder::buildSerializedNetwork: Error Code 1: Cuda Runtime (In generateForCurrent at /_src/runtime/core/"
    "cudaDeviceProfile.cpp:221 (cudaError 35: CUDA driver version is insufficient for CUDA runtime version))"
)


def test_only_the_echo_of_a_missing_driver_is_dropped():
    assert is_echo(ECHO)
    assert not is_echo(REAL)


def test_errors_go_to_the_innermost_block_and_warnings_nowhere(trt):
    logger = logger_of(trt)
    severity = trt.ILogger.Severity
    with collected_errors() as outer:
        logger.log(severity.ERROR, "one")
        with collected_errors() as inner:
            logger.log(severity.INTERNAL_ERROR, "two")
            logger.log(severity.ERROR, ECHO)
            logger.log(severity.WARNING, "mind the gap")
        logger.log(severity.ERROR, "three")
    assert outer == ["one", "three"]
    assert inner == ["two"]


def test_tensorrt_reports_here_and_there_is_one_logger(trt):
    assert logger_of(trt) is logger_of(trt)
    with collected_errors() as errors:
        assert trt.Runtime(logger_of(trt)).deserialize_cuda_engine(b"not an engine") is None
    assert len(errors) == 1
    assert "readHeader" in errors[0]
