"""One thread per test process: the suite runs two processes on two cores."""

import os
import threading

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it; ONNX Runtime's sessions and child processes follow it too

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def threads():
    """Threads that are there before the test; others may have left some."""
    return threading.active_count()
