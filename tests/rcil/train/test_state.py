import pytest
import torch

from rcil.errors import TrainingError
from rcil.methods import make_method
from rcil.train.state import Position, StepState


def make_state():
    """A state of a model of six numbers."""
    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, 10)
    return StepState(
        model, optimiser, schedule, torch.amp.GradScaler("cpu", enabled=False), make_method("rcil"), Position()
    )


def test_a_state_comes_back(tmp_path):
    first, second = make_state(), make_state()
    first.position.epoch = 3
    first.save(tmp_path / "state.pt")
    second.load(tmp_path / "state.pt")
    assert second.position == first.position
    assert torch.equal(second.model.weight, first.model.weight)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", torch.zeros(1)),
        ("model", {"weight": 3}),
        ("optimiser", []),
        ("optimiser", {"state": {}, "param_groups": [3]}),
        ("schedule", None),
        ("position", {"surprise": 1}),
        ("position", {"skipped": {"surprise": 1}}),
        ("position", {"skipped": 3}),
        ("position", 3),
        ("rng", torch.zeros(1)),
    ],
)
def test_a_state_of_something_else_is_named(tmp_path, key, value):
    make_state().save(tmp_path / "state.pt")
    document = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save({**document, key: value}, tmp_path / "state.pt")
    with pytest.raises(TrainingError, match=r"state\.pt does not belong to this task: \S"):
        make_state().load(tmp_path / "state.pt")


@pytest.mark.parametrize("content", [3, torch.zeros(2), None, "x"])
def test_a_file_without_a_state(tmp_path, content):
    torch.save(content, tmp_path / "state.pt")
    with pytest.raises(TrainingError, match=r"state\.pt"):
        make_state().load(tmp_path / "state.pt")


def test_a_tensor_that_stands_for_more_than_it_holds_is_refused(tmp_path):
    make_state().save(tmp_path / "state.pt")
    document = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save({**document, "optimiser": {"state": {0: [torch.zeros(1).expand(10**12)]}}}, tmp_path / "state.pt")
    with pytest.raises(TrainingError, match="cannot read the state"):
        make_state().load(tmp_path / "state.pt")


def test_the_generator_of_the_models_gpu_is_saved_not_that_of_the_current_one(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: asked.append(device) or torch.get_rng_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: asked.append(device))
    on_second = torch.device("cuda", 1)
    monkeypatch.setattr(StepState, "_device", property(lambda self: on_second))
    make_state().save(tmp_path / "state.pt")
    make_state().load(tmp_path / "state.pt")
    assert asked == [on_second, on_second]
