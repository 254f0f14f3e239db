import os
import signal

import pytest

from rcil.classify.run import run_classify
from rcil.classify.state import interrupted_phase
from rcil.core.errors import TrainingError
from rcil.core.files import sha256_of
from rcil.core.interrupts import Interrupted, interruptible
from rcil.training.state import read_state


def stop_at(step, iteration):
    def listen(event):
        if (event.step, event.iteration) == (step, iteration):
            os.kill(os.getpid(), signal.SIGTERM)

    return listen


@pytest.mark.parametrize(("step", "iteration", "phase"), [(0, 3, "train"), (1, 1, "train"), (1, 3, "tune")])
def test_an_interrupted_step_continues_to_the_same_bits(finished, tmp_path, step, iteration, phase):
    task, out, whole = finished["eeil"]
    with pytest.raises(Interrupted), interruptible():
        run_classify(task, tmp_path, listen=stop_at(step, iteration))
    state = tmp_path / f"step{step}.state.pt"
    assert interrupted_phase(state) == phase
    assert read_state(state)["done"] == (iteration if phase == "train" else 1)
    trained = []
    assert run_classify(task, tmp_path, listen=lambda event: trained.append((event.step, event.iteration))) == whole
    assert (step, iteration) not in trained, "finished iterations are not repeated"
    for name in ("step0.safetensors", "step1.safetensors", "step2.safetensors", "step2.memory.json"):
        assert sha256_of(tmp_path / name) == sha256_of(out / name)
    assert not state.exists()


def test_a_state_of_another_network_is_refused(finished, tmp_path):
    task, _, _ = finished["eeil"]
    with pytest.raises(Interrupted), interruptible():
        run_classify(task, tmp_path, listen=stop_at(0, 2))
    (tmp_path / "step1.state.pt").write_bytes((tmp_path / "step0.state.pt").read_bytes())
    with pytest.raises(TrainingError, match="does not belong to this task"):
        run_classify(task, tmp_path)
