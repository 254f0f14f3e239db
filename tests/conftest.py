"""One thread per test process, since the suite runs two processes on two cores; Ctrl-C works in every shell."""

import os
import signal
import threading

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it; ONNX Runtime's sessions and child processes follow it too

import pytest
import torch

torch.set_num_threads(1)

# A shell that starts the suite in the background (`nohup make test &`) lets it ignore SIGINT, and with it every process
# that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def threads():
    """Threads that are there before the test; others may have left some."""
    return threading.active_count()
