import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rcil_export.engine.errors import EngineError
from rcil_export.engine.slot_pool import SlotPool


class Slot:
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


@pytest.fixture
def made():
    return []


@pytest.fixture
def pool(made):
    def make():
        made.append(Slot())
        return made[-1]

    return SlotPool(make, 2)


def test_one_thread_needs_one_slot(pool, made):
    for _ in range(3):
        with pool.slot() as slot:
            assert slot is made[0]
    assert len(made) == 1


def test_never_more_than_the_limit_and_never_shared(pool, made):
    using = []
    together = threading.Barrier(2)

    def work(index):
        with pool.slot() as slot:
            assert slot not in using
            using.append(slot)
            if index < 2:
                together.wait(10)  # so that both slots are really in use at once
            using.remove(slot)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(40)))
    assert len(made) == 2


def test_no_room_for_a_second_slot(made):
    def make():
        if made:
            raise EngineError("out of memory", "")
        made.append(Slot())
        return made[-1]

    pool, entered, leave = SlotPool(make, 2), threading.Event(), threading.Event()

    def first():
        with pool.slot():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    waiting = ThreadPoolExecutor(1).submit(lambda: pool.slot().__enter__())
    leave.set()
    assert waiting.result(10) is made[0]
    thread.join()


def test_no_room_at_all(made):
    pool = SlotPool(lambda: (_ for _ in ()).throw(EngineError("out of memory", "")), 2)
    with pytest.raises(EngineError, match="out of memory"), pool.slot():
        pass


def test_closing_waits_for_frames_in_flight_and_refuses_new_ones(pool, made):
    entered, leave = threading.Event(), threading.Event()

    def frame():
        with pool.slot():
            entered.set()
            leave.wait(10)
            assert not made[0].closed

    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(frame)
        entered.wait(10)
        closing = threads.submit(pool.close)
        assert not closing.done()
        leave.set()
        running.result(10)
        closing.result(10)
    pool.close()
    assert [slot.closed for slot in made] == [1]
    with pytest.raises(EngineError, match="the engine is closed"), pool.slot():
        pass
