"""fp16 batches that overflow are left out without a trace, and only a few of them."""

import logging
import math

import pytest
import torch
from networks import small_arch

from rcil.core.errors import TrainingError
from rcil.methods import make_method
from rcil.nn import build
from rcil.tasks.load import load_task
from rcil.training import loop, skipping
from rcil.training.run import run_task
from rcil.training.skipping import Skipped, Undo
from rcil.training.state import Position

FP16 = ["training.precision=fp16", "training.epochs=[1, 1]", "training.batch=2"]


@pytest.fixture
def overflow(monkeypatch):
    """Makes chosen batches of a run, counted from 0 over all steps, overflow as fp16 does: maps, then everything."""
    whole = loop._learn
    seen = []

    def choose(batches):
        def learn(network, old, state, pieces, job):
            seen.append(None)
            if len(seen) - 1 in batches:
                pieces = [(images * math.inf, labels) for images, labels in pieces]
            return whole(network, old, state, pieces, job)

        monkeypatch.setattr(loop, "_learn", learn)

    return choose


def test_a_batch_that_overflows_leaves_no_trace(task_file, tmp_path, overflow, caplog):
    overflow({1})
    events = []
    with caplog.at_level(logging.WARNING, "rcil"):
        run_task(load_task(task_file, [*FP16, "method.name=sdr"]), tmp_path / "run", listen=events.append)
    assert "step 0, epoch 0, iteration 1: the loss term ce" in caplog.text and "the batch is skipped" in caplog.text
    state = torch.load(tmp_path / "run" / "step0" / "state.pt", weights_only=True)
    assert all(value.isfinite().all() for value in state["model"].values()), "norm statistics among them"
    assert state["method"]["prototypes"].isfinite().all()
    assert state["position"]["skipped"] == {"total": 1, "in_a_row": 0, "overflows_in_a_row": 0}
    assert state["scaler"]["scale"] == 65536, "the loss scale has nothing to do with it"
    rows = state["position"]["rows"]
    assert [row["iteration"] for row in rows if "lr" in row] == list(range(1, 5)), "it counts as a batch"
    assert "ce" not in rows[1] and "ce" in rows[2]
    assert rows[1]["lr"] == rows[2]["lr"], "the schedule waits"


def test_too_many_in_a_row_end_the_run(task_file, tmp_path, overflow, monkeypatch):
    monkeypatch.setattr(skipping, "MAX_SKIPPED_IN_A_ROW", 2)
    overflow({1, 2, 3})
    with pytest.raises(TrainingError, match=r"iteration 3.*\(3 in a row, 3 in this step\)") as caught:
        run_task(load_task(task_file, FP16), tmp_path / "run")
    assert "bf16" in caught.value.hint


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_precisions_end_at_once(task_file, tmp_path, overflow, precision):
    overflow({1})
    with pytest.raises(TrainingError, match=r"iteration 1.*is not finite"):
        run_task(load_task(task_file, [*FP16, f"training.precision={precision}"]), tmp_path / "run")


def test_a_resumed_run_goes_on_counting(task_file, tmp_path, overflow, monkeypatch):
    monkeypatch.setattr(skipping, "MAX_SKIPPED", 1)
    task = load_task(task_file, [*FP16, "training.save_every=1"])
    overflow({0})

    def interrupt(event):
        if event.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(task, tmp_path / "run", listen=interrupt)
    overflow({4})  # the fifth batch that is learned: the third of the first run was not saved
    with pytest.raises(TrainingError, match=r"\(1 in a row, 2 in this step\)"):
        run_task(task, tmp_path / "run", resume=True)


def test_limits():
    skipped = Skipped()
    assert all(skipped.not_finite() for _ in range(skipping.MAX_SKIPPED_IN_A_ROW))
    assert not skipped.not_finite()
    skipped = Skipped()
    for _ in range(skipping.MAX_SKIPPED):
        assert skipped.not_finite()
        assert skipped.finite(moved=True)
    assert not skipped.not_finite(), "in all"
    skipped = Skipped()
    assert all(skipped.finite(moved=False) for _ in range(skipping.MAX_OVERFLOWS_IN_A_ROW))
    assert not skipped.finite(moved=False), "gradients that never fit"


def test_gradients_that_never_fit_end_the_run(task_file, tmp_path, monkeypatch):
    monkeypatch.setattr(skipping, "MAX_OVERFLOWS_IN_A_ROW", 1)
    whole = loop._learn

    def learn(network, old, state, pieces, job):
        numbers = whole(network, old, state, pieces, job)
        next(p for p in network.parameters() if p.grad is not None).grad.fill_(math.nan)
        return numbers

    monkeypatch.setattr(loop, "_learn", learn)
    with pytest.raises(TrainingError, match="the gradients overflowed"):
        run_task(load_task(task_file, FP16), tmp_path / "run")


def test_states_from_before_there_was_a_limit():
    old = {"epoch": 2, "iteration": 3, "best_miou": 0.5, "best_epoch": 1, "rows": []}
    assert Position.of(old) == Position(2, 3, 0.5, 1)
    assert Position.of(Position(2, skipped=Skipped(3, 1)).as_document()) == Position(2, skipped=Skipped(3, 1))


def test_what_a_forward_pass_writes_is_undone():
    model = build(small_arch(), [["background", "a"]]).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    undo = Undo(model, make_method("rcil"))
    undo.remember()
    model(torch.full((2, 3, 64, 64), math.inf))
    assert not all(value.isfinite().all() for value in model.state_dict().values())
    undo.undo()
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
