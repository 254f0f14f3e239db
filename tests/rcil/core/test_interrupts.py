import os
import signal
import subprocess
import sys

import pytest

from rcil.core.interrupts import Interrupted, deferred, immediate, interruptible, requested


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def stopped(block):
    """Run a function that is interrupted, and return the exception."""
    with pytest.raises(Interrupted) as stop, interruptible():
        block()
    return stop.value


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_raises_at_once(number, exit_code):
    before = signal.getsignal(number)

    def block():
        send(number)
        raise AssertionError

    assert stopped(block).exit_code == exit_code
    assert signal.getsignal(number) is before and requested() is None


def test_a_block_is_finished_first():
    done = []

    def block():
        with deferred():
            with deferred():
                send()
                done.append("inner")
            assert requested() == signal.SIGTERM
            done.append("outer")
        done.append("too far")

    stopped(block)
    assert done == ["inner", "outer"]


@pytest.mark.parametrize("early", [True, False])
def test_a_long_part_of_a_block_is_not(early):
    done = []

    def block():
        with deferred():
            if early:
                send()
            with immediate():
                done.append("entered")
                send()
                raise AssertionError

    stopped(block)
    assert done == ([] if early else ["entered"])


def test_an_error_is_not_hidden_by_the_interrupt():
    def block():
        with deferred():
            send()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), interruptible():
        block()


PROGRAM = """
import os, signal, sys
from rcil.core.interrupts import deferred, interruptible
if "ignored" in sys.argv: signal.signal(signal.SIGINT, signal.SIG_IGN)
with interruptible(), deferred():
    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)
    print("still here")
"""


def test_a_second_signal_ends_the_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
    assert done.stderr.strip() == "stopping after this iteration; a second Ctrl-C ends the run at once"


def test_an_ignored_signal_stays_ignored():
    done = subprocess.run([sys.executable, "-c", PROGRAM, "ignored"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here\n", "")
