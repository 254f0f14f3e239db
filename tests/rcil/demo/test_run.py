import pytest

from rcil.core.errors import ConfigError, TrainingError
from rcil.demo import run as demo
from rcil.site.run import Display
from rcil.site.schedule import BudgetError


@pytest.mark.parametrize(
    ("needed", "attempts"), [([4], [2.0, 4, 4]), ([4, 6], [2.0, 4, 6, 6]), ([7], [2.0, None, None])]
)
def test_a_busy_machine_gets_the_minutes_that_it_needs_and_keeps_them(tmp_path, monkeypatch, needed, attempts):
    given, said, left = [], [], list(needed)

    def add(deployed, site, output, how, display, device):
        given.append(how["minutes"])
        if left:
            raise BudgetError(left.pop(0), "2 min are too short", "Use --minutes 4.")
        output.mkdir(exist_ok=True)
        (output / demo.RECORD).write_text(f"minutes: {'null' if how['minutes'] is None else how['minutes']}\n")
        return {}

    monkeypatch.setattr(demo, "_add", add)
    for _ in range(2):
        demo._teach(tmp_path, tmp_path, tmp_path / "out", {"minutes": 2.0}, Display(explain=said.append), "cpu")
    assert given == attempts
    assert len(said) == len(needed) and all("too short" in line and "--minutes" not in line for line in said)


def test_a_training_that_fails_is_not_started_again(tmp_path, monkeypatch):
    def add(deployed, site, output, how, display, device):
        (output / demo.RECORD).write_text("minutes: 2.0\n")
        raise TrainingError("the loss is not finite", "Use a lower --lr.")

    monkeypatch.setattr(demo, "_add", add)
    with pytest.raises(TrainingError, match="not finite"):
        demo._teach(tmp_path, tmp_path, tmp_path, {"minutes": 2.0}, Display(), "cpu")


def test_a_missing_model_names_the_command_that_trains_it(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "BASE", tmp_path / "none.safetensors")
    with pytest.raises(ConfigError) as error:
        demo.run(tmp_path / "out", quick=True, say=print, watch=lambda: None)
    assert "make demo-model" in error.value.hint
    assert not (tmp_path / "out").exists()


def test_stages_are_timed(monkeypatch):
    stages = {}
    with demo._timed("nothing", stages):
        pass
    assert stages == {"nothing": {"seconds": 0.0, "cpu_seconds": 0.0}}
