import signal
import threading

import pytest

from rcil_export.engine.progress import BuildWatch, interrupt_stops


def test_progress_is_passed_on():
    seen = []
    watch = BuildWatch(lambda *event: seen.append(event))
    watch.begin("outer", 2)
    watch.begin("inner", 3)
    assert watch.advance("inner", 1)
    watch.finish("inner")
    assert watch.advance("outer", 1)
    assert watch.advance("outer", 2)
    watch.finish("outer")
    inner = [("inner", 0, 3), ("inner", 1, 3), ("inner", 3, 3)]
    assert seen == [("outer", 0, 2), *inner, ("outer", 1, 2), ("outer", 2, 2)]


def test_without_a_listener_it_goes_on():
    watch = BuildWatch(None)
    watch.begin("outer", 1)
    assert watch.advance("outer", 1)


def test_an_error_of_the_listener_stops_the_build_and_is_kept():
    calls = []

    def fail(*event):
        calls.append(event)
        raise ValueError("broken display")

    watch = BuildWatch(fail)
    watch.begin("outer", 2)
    assert not watch.advance("outer", 1)
    assert isinstance(watch.stopped_by, ValueError)
    assert len(calls) == 1


def test_ctrl_c_is_a_request_inside_and_an_interrupt_outside():
    watch = BuildWatch(None)
    with interrupt_stops(watch):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert not watch.advance("outer", 1)
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
