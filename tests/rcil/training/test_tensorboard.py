import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rcil.training.loop import Event
from rcil.training.tensorboard import both, tensorboard


def curves(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, pytest.approx(e.value)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_curves_of_an_interrupted_run_continue(tmp_path):
    with tensorboard(tmp_path) as listen:
        for iteration in (1, 2, 3):
            listen(Event(0, 0, 2, iteration, 4, {"ce": float(iteration)}, lr=0.1))
    with tensorboard(tmp_path) as listen:  # the state was saved after iteration 1
        listen(Event(0, 0, 2, 0, 4, {}, processed=(1, 9)))
        for iteration in (2, 3, 4):
            listen(Event(0, 0, 2, iteration, 4, {"ce": 10.0 * iteration}, lr=0.1))
        listen(Event(0, 0, 2, 4, 4, {}, miou=0.5))
        listen(Event(0, 1, 2, 4, 4, {}, finished=True))
        listen(Event(0, 1, 2, 4, 4, {}, processed=(9, 9)))
    found = curves(tmp_path / "tensorboard" / "step0")
    assert found["loss/ce"] == [(1, 1.0), (2, 20.0), (3, 30.0), (4, 40.0)]
    assert found["held_out_miou"] == [(4, 0.5)]
    assert [step for step, _ in found["lr"]] == [1, 2, 3, 4]


def test_both_are_told():
    seen = []
    both(seen.append, seen.append)(Event(0, 0, 1, 1, 1, {}))
    assert len(seen) == 2
