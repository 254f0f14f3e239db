import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fake_gpu import FakeContext, FakeCuda

from rcil_export.engine.errors import EngineError
from rcil_export.engine.sidecar import EngineSidecar, TensorInfo
from rcil_export.engine.slot import ALIGNMENT, Slot, SlotPool

ZEROS = "0" * 64
IMAGE = np.arange(2 * 5 * 7 * 3, dtype=np.uint8).reshape(2, 5, 7, 3)


def sidecar(*outputs):
    types = {"mask": "uint8", "confidence": "float32"}
    return EngineSidecar(
        engine_sha256=ZEROS,
        onnx_sha256=ZEROS,
        onnx_file="model.onnx",
        flavour="rtx",
        version="1",
        gpus=("sm86",),
        precision="fp32",
        conv_layers={},
        inputs=(TensorInfo(name="image", dtype="uint8", shape=(2, 5, 7, 3)),),
        outputs=tuple(TensorInfo(name=name, dtype=types[name], shape=(2, 5, 7)) for name in outputs),
        profile=None,
        metadata={},
    )


def slot_of(*outputs, capture=False):
    cuda = FakeCuda()
    context = FakeContext(cuda)
    return Slot(cuda, context, sidecar(*outputs), capture=capture), cuda, context


def test_a_frame_is_one_copy_in_one_copy_out_and_one_wait():
    slot, cuda, _ = slot_of("mask", "confidence")
    slot.run(IMAGE)
    del cuda.calls[:]
    for _ in range(3):
        slot.run(IMAGE)
    assert cuda.calls == ["use", "copy_in", "enqueue", "copy_out", "wait"] * 3


def test_outputs_are_right_and_survive_the_next_frame():
    slot, _, context = slot_of("mask", "confidence")
    first = slot.run(IMAGE)
    slot.run(IMAGE[::-1].copy())
    np.testing.assert_array_equal(first["mask"], IMAGE[..., 0])
    np.testing.assert_array_equal(first["confidence"], IMAGE[..., 0] / np.float32(255))
    assert (context.addresses["confidence"] - context.addresses["mask"]) % ALIGNMENT == 0


def test_an_image_whose_memory_is_not_in_order():
    slot, _, _ = slot_of("mask")
    turned = np.ascontiguousarray(IMAGE.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    assert not turned.flags.c_contiguous
    np.testing.assert_array_equal(slot.run(turned)["mask"], IMAGE[..., 0])


def test_buffers_grow_and_are_used_again():
    slot, cuda, _ = slot_of("mask")
    small, large = IMAGE[:, :3], np.tile(IMAGE, (1, 4, 4, 1))
    for image in (small, large, small, large):
        np.testing.assert_array_equal(slot.run(image)["mask"], image[..., 0])
    allocated = cuda.of("device_memory", "pinned_memory", "free_device", "free_pinned")
    assert allocated == ["device_memory", "pinned_memory"] * 2 + (
        ["free_device", "free_pinned", "device_memory", "pinned_memory"] * 2
    )


def test_closing_gives_everything_back_once():
    slot, cuda, _ = slot_of("mask", "confidence", capture=True)
    for _ in range(3):
        slot.run(IMAGE)
    slot.close()
    slot.close()
    assert not cuda.blocks and not cuda.open


@pytest.mark.parametrize("call", ["use", "copy_in", "copy_out", "wait", "pinned_memory"])
def test_after_a_failure_everything_is_still_given_back(call):
    slot, cuda, _ = slot_of("mask")
    cuda.fails = (call,)
    with pytest.raises(EngineError, match=f"refused {call}"):
        slot.run(IMAGE)
    cuda.fails = ()
    slot.close()
    assert not cuda.blocks and not cuda.open


def test_a_shape_that_failed_is_set_again():
    slot, cuda, _ = slot_of("mask")
    cuda.fails = ("pinned_memory",)
    with pytest.raises(EngineError):
        slot.run(IMAGE)
    cuda.fails = ()
    np.testing.assert_array_equal(slot.run(IMAGE)["mask"], IMAGE[..., 0])


@pytest.mark.parametrize("broken", ["set_input_shape", "set_tensor_address", "execute_async_v3"])
def test_what_tensorrt_refuses_is_an_error(broken, monkeypatch):
    slot, _, context = slot_of("mask")
    monkeypatch.setattr(context, broken, lambda *_: False)
    with pytest.raises(EngineError, match="TensorRT refused"):
        slot.run(IMAGE)


def test_an_unknown_shape_is_an_error(monkeypatch):
    slot, _, context = slot_of("mask")
    monkeypatch.setattr(context, "get_tensor_shape", lambda name: (2, -1, 7))
    with pytest.raises(EngineError, match="does not know the shape of 'mask'"):
        slot.run(IMAGE)


def test_a_captured_graph_is_launched_from_the_second_frame_on():
    slot, cuda, _ = slot_of("mask", capture=True)
    for shift in range(4):
        image = np.roll(IMAGE, shift)
        np.testing.assert_array_equal(slot.run(image)["mask"], image[..., 0])
    steps = cuda.of("enqueue", "enqueue (captured)", "begin_capture", "end_capture", "launch")
    assert steps == ["enqueue", "begin_capture", "enqueue (captured)", "end_capture", "launch", "launch", "launch"]


def test_another_shape_needs_another_graph():
    slot, cuda, _ = slot_of("mask", capture=True)
    for image in (IMAGE, IMAGE, IMAGE[:, :3], IMAGE[:, :3]):
        np.testing.assert_array_equal(slot.run(image)["mask"], image[..., 0])
    assert cuda.of("enqueue", "launch", "destroy_graph") == ["enqueue", "launch", "destroy_graph", "enqueue", "launch"]


def test_without_a_graph_it_runs_all_the_same(caplog):
    slot, cuda, _ = slot_of("mask", capture=True)
    cuda.fails = ("begin_capture",)
    with caplog.at_level("INFO", logger="rcil"):
        for _ in range(3):
            np.testing.assert_array_equal(slot.run(IMAGE)["mask"], IMAGE[..., 0])
    assert cuda.of("enqueue", "begin_capture") == ["enqueue", "begin_capture", "enqueue", "enqueue"]
    assert "runs without a CUDA graph: the GPU refused begin_capture" in caplog.text


class FakeSlot:
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
        made.append(FakeSlot())
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
        made.append(FakeSlot())
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
