import os
import sys
import threading

import pytest

from rcil.core.errors import RcilError
from rcil_serve.stream.frames import Frame
from rcil_serve.watch.events import EventLog
from rcil_serve.watch.promotion import Promotion
from rcil_serve.watch.shadow import Shadow, rejection_reason
from rcil_serve.watch.trial import TrialRule

CURRENT, AGREES, FORGETS = {100: 1, 150: 2}, {100: 1, 150: 2, 200: 3}, {100: 1, 200: 3}


class Place(Promotion):
    """Notes promotions instead of carrying them out."""

    error = None

    def apply(self, model, sha256):
        if self.error is not None:
            raise self.error
        Place.done.append((model.name, sha256))


@pytest.fixture
def stage(kit, tmp_path):
    Place.done, Place.error = [], None
    events = []

    def make(table, **rule):
        current, new = kit.model(0, CURRENT), kit.model(1, table)
        path = tmp_path / "new.onnx"
        shadow = Shadow(path, new, current, TrialRule(**({"frames": 3} | rule)), Place(), EventLog(None, events.append))

        def show(*reds):
            pixels = kit.scene(*reds)
            return shadow.compare(Frame(0, 0, 1.0, pixels, 0.0), current.segment(pixels).mask)

        return shadow, show

    return make, events


def test_a_step_that_agrees_is_promoted_once_after_the_stated_frames(stage):
    make, events = stage
    shadow, show = make(AGREES)
    assert [show(100, 150, 0) for _ in range(3)] == [False, False, True]
    assert Place.done == [("new.onnx", "1" * 64)]
    assert [event.kind for event in events] == ["promoted"]
    assert events[0].facts["agreement"] == {"background": 1.0, "a": 1.0, "b": 1.0}
    assert events[0].facts["model"]["step"] == 1 and events[0].facts["replaced"]["step"] == 0
    assert not shadow.alive and shadow.compared == 3
    assert not show(100, 150, 0) and len(Place.done) == 1


def test_a_step_that_forgets_is_refused_until_it_agrees(stage):
    make, events = stage
    _, show = make(FORGETS)
    assert not any(show(100, 150, 0) for _ in range(3))
    assert [event.kind for event in events] == ["refused"]
    assert events[0].facts["reasons"] == [
        "background has an IoU of 0.500, below 0.950",
        "b has an IoU of 0.000, below 0.950",
    ]
    assert [show(100, 0, 0) for _ in range(3)] == [False, False, True], "what it forgot is not in these pictures"


def test_new_classes_must_be_seen(stage):
    make, events = stage
    _, show = make(AGREES, needs_new=True)
    assert not any(show(100, 150, 0) for _ in range(3))
    assert events[0].facts["reasons"] == ["new1 was not seen"]
    assert [show(100, 150, 200), show(100, 150, 0), show(100, 150, 0)] == [False, False, True]


def test_a_promotion_that_fails_leaves_the_current_step_and_is_tried_again(stage):
    make, events = stage
    shadow, show = make(AGREES)
    Place.error = RcilError("the disk is full")
    assert not any(show(100, 150) for _ in range(3))
    assert [event.kind for event in events] == ["promotion_failed"] and shadow.alive
    assert "the disk is full" in events[0].text
    Place.error = None
    assert [show(100, 150) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("error", [RcilError("cannot run"), ValueError("odd"), MemoryError("full")])
def test_a_step_that_fails_is_given_up_and_nothing_else_happens(stage, error):
    make, events = stage
    shadow, show = make(AGREES)
    shadow.predictor.backend.error = error
    assert not any(show(100, 150) for _ in range(5))
    assert [event.kind for event in events] == ["shadow_failed"], "once, not for every frame"
    assert not shadow.alive and Place.done == []
    assert shadow.predictor.backend.closed == 1, "its memory is free again"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own")
def test_a_promotion_has_the_priority_of_the_program(stage, monkeypatch):
    """Frames are compared in a thread of low priority, which no unprivileged process can raise again."""
    make, _ = stage
    _, show = make(AGREES)
    seen = []
    monkeypatch.setattr(
        Place, "apply", lambda *given: seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    )

    def compare():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        for _ in range(3):
            show(100, 150, 0)

    thread = threading.Thread(target=compare)
    thread.start()
    thread.join()
    assert seen == [os.getpriority(os.PRIO_PROCESS, threading.get_native_id())] != [19]


def test_masks_with_classes_that_are_not_there(stage):
    make, events = stage
    _, show = make({100: 9})
    assert not show(100, 150)
    assert "masks with unknown classes" in events[0].text


def test_who_can_never_take_over(kit):
    step0, step1 = kit.model(0, {}), kit.model(1, {})
    assert rejection_reason(step0, step1) is None
    assert rejection_reason(step1, step0) == "it does not know new1"
    assert rejection_reason(step1, kit.model(1, {})) == "it is the current model"
    metadata = step1.backend.metadata
    step1.backend.metadata = metadata.model_copy(update={"rejected": "old classes lost 9 points"})
    assert rejection_reason(step0, step1) == "a check after training rejected it: old classes lost 9 points"
