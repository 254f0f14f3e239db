import asyncio
import threading

import pytest

from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.workers import Workers


@pytest.fixture
def gate():
    """Work that waits until the test lets it go on."""
    event = threading.Event()
    yield event
    event.set()


def test_gives_the_result_and_the_place_back():
    async def run():
        workers = Workers(1, 0)
        with workers.slot() as slot:
            assert workers.in_use == 1
            assert await slot.run(lambda: 3, 10) == 3
        assert workers.in_use == 0
        with pytest.raises(ZeroDivisionError), workers.slot() as slot:
            await slot.run(lambda: 1 // 0, 10)
        assert workers.in_use == 0
        workers.close()

    asyncio.run(run())


def test_full():
    workers = Workers(1, 1)
    with workers.slot(), workers.slot():
        with pytest.raises(RefusalError, match="2 requests") as caught, workers.slot():
            pass
        assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    assert workers.in_use == 0
    with workers.slot():
        assert workers.in_use == 1
    workers.close()


def test_time_limits_and_the_place_of_work_that_goes_on(gate):
    async def run():
        workers = Workers(1, 1)
        ran = []
        with pytest.raises(RefusalError) as running, workers.slot() as first:
            await first.run(gate.wait, 0.5)
        assert running.value.status == 504
        assert workers.in_use == 1, "its thread still works"
        with pytest.raises(RefusalError) as waiting, workers.slot() as second:
            await second.run(lambda: ran.append(1), 0.05)
        assert waiting.value.status == 503
        assert workers.in_use == 1, "it never began, so its slot is free"
        gate.set()
        while workers.in_use:
            await asyncio.sleep(0.01)
        workers.close()
        assert ran == []

    asyncio.run(asyncio.wait_for(run(), 20))
