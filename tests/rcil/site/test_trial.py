import time
from pathlib import Path

import pytest
import torch

from rcil.core.errors import TrainingError
from rcil.hardware.processes import ALONE
from rcil.methods import rcil_plus
from rcil.site.preflight import preflight
from rcil.site.run import _step
from rcil.site.trial import IMAGES, measure_costs
from rcil.training import memory


@pytest.fixture
def measured(ask):
    def measure(name, *overrides):
        request = ask(f"method.name={name}", *overrides)
        ready = preflight(request).require()
        job, student, _, method = _step(request, ready, Path(), ALONE)
        evaluated = ready.data, ready.evaluation[1]
        return measure_costs(job, student, ready.model, method, evaluated)

    return measure


@pytest.mark.parametrize(
    ("name", "looks"), [("rcil-plus", 2), ("rcil", 0), ("strict", 0), ("plop", 0), ("fine-tuning", 0)]
)
def test_every_method_can_be_tried(measured, name, looks):
    costs, needed = measured(name)
    assert costs.looks == looks
    assert (costs.looked > 0) == (costs.fitted > 0) == bool(looks)
    assert min(costs.iteration, costs.validated, costs.compared) > 0
    assert needed > 0


def test_the_time_of_the_fit_is_measured(measured, monkeypatch):
    monkeypatch.setattr(rcil_plus, "refit_classifier", lambda student, pixels, **_: time.sleep(0.6))
    costs, _ = measured("rcil-plus")
    assert costs.fitted > 2 * 0.6 / IMAGES > costs.looked, "before and after the training"


def test_every_look_is_counted(measured):
    """Fusion in closed form looks at the images once more."""
    assert measured("rcil-plus", "method.options={fuse: regmean}")[0].looks == 3


def test_larger_crops_need_more_memory(measured):
    (_, small), (_, large) = (measured("rcil", f"training.crop={crop}") for crop in (32, 96))
    assert large > small  # times are not compared: they depend on what else the machine does


def test_random_numbers_and_the_old_model_stay(ask):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    request = ask()
    ready = preflight(request).require()
    before = {name: value.clone() for name, value in ready.model.network.state_dict().items()}
    job, student, _, method = _step(request, ready, Path(), ALONE)
    torch.set_rng_state(state)
    measure_costs(job, student, ready.model, method, (ready.data, ready.evaluation[1]))
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in ready.model.network.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_too_little_memory_is_reported_before_anything_is_tried(measured, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    with pytest.raises(TrainingError, match="are free"):
        measured("rcil")
