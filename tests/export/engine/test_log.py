import pytest

from rcil_export.engine.log import collected_errors, is_echo, logger_of

trt = pytest.importorskip("tensorrt_rtx")
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


def test_errors_go_to_the_innermost_block_and_warnings_nowhere():
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


def test_tensorrt_reports_here_and_there_is_one_logger():
    assert logger_of(trt) is logger_of(trt)
    with collected_errors() as errors:
        assert trt.Runtime(logger_of(trt)).deserialize_cuda_engine(b"not an engine") is None
    assert len(errors) == 1
    assert "readHeader" in errors[0]
