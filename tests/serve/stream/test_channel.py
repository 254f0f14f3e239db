import threading

import pytest

from rcil_serve.stream.channel import Channel, Failure, StoppedError


def test_items_come_in_order_and_the_end_ends():
    channel = Channel(3, Failure())
    writer = threading.Thread(target=lambda: ([channel.put(item) for item in range(50)], channel.close()))
    writer.start()
    assert list(channel) == list(range(50))
    writer.join()


def test_a_full_channel_waits():
    channel = Channel(2, Failure())
    for item in range(2):
        channel.put(item)
    writer = threading.Thread(target=lambda: channel.put(2))
    writer.start()
    writer.join(0.1)
    assert writer.is_alive() and len(channel) == 2
    items = iter(channel)
    assert next(items) == 0
    writer.join()
    assert len(channel) == 2


def test_a_live_channel_drops_the_oldest_that_may_go():
    dropped = []
    channel = Channel(3, Failure(), dropped.append, lambda item: item >= 0)
    for item in (-1, 1, 2, 3, 4):
        channel.put(item)
    channel.close()
    assert dropped == [1]
    assert list(channel) == [-1, 2, 3, 4]


def test_sound_neither_waits_for_frames_nor_displaces_them():
    dropped = []
    channel = Channel(2, Failure(), dropped.append, lambda item: item >= 0)
    for item in (1, -1, -2, 2, -3, -4, -5, 3):
        channel.put(item)
    channel.close()
    assert dropped == [1]
    assert list(channel) == [-1, -2, 2, -3, -4, -5, 3]


def test_the_first_failure_wakes_everybody():
    failure = Failure()
    channel, seen = Channel(1, failure), []

    def work(action):
        try:
            action()
        except StoppedError:
            seen.append("stopped")

    empty = Channel(1, failure)
    channel.put(0)
    threads = [threading.Thread(target=work, args=[action]) for action in (lambda: channel.put(1), lambda: list(empty))]
    for thread in threads:
        thread.start()
    failure.fail(ValueError("first"))
    failure.fail(KeyError("second"))
    for thread in threads:
        thread.join()
    assert seen == ["stopped", "stopped"]
    assert isinstance(failure.error, ValueError)
    with pytest.raises(StoppedError):
        channel.put(2)
