"""Priorities of the threads of a pipeline."""

import os
import sys
import threading

import pytest

from rcil_serve.stream import priority


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_threads_yield_to_inference_but_not_to_everybody():
    """Niceness 15 would leave a thirtieth of a core next to another program, so that inference waits."""
    found = []

    def work():
        before = os.getpriority(os.PRIO_PROCESS, 0)
        priority.yield_to_inference()
        found.extend((before, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[1] == min(19, found[0] + priority.NICE) and 1.25**-priority.NICE > 0.5
    assert os.getpriority(os.PRIO_PROCESS, 0) == found[0], "other threads are not affected"
