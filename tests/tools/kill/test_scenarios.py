import json
import shutil

import pytest
import torch
from clips import make_clip

import tools.kill.__main__ as command
from rcil.core.documents import write_json
from rcil.core.files import sha256_of
from tools.kill import train
from tools.kill.export import export_problems
from tools.kill.reload import model_problems
from tools.kill.tally import Tally, left_in
from tools.kill.video import receipt_problems, video_problems


@pytest.mark.slow
@pytest.mark.parametrize("name", command.SCENARIOS)
def test_nothing_is_lost(name):
    tally = command.run_scenario(name, kills=2, minutes=10, seed=1)
    assert tally.problems == []
    assert tally.kills == 2 and tally.finished >= 1 and tally.left_in_the_end == 0
    assert (tally.requests > 0 and tally.reloads == 20) == (name == "reload")


def test_a_step_that_is_not_as_in_an_undisturbed_run_is_found(tmp_path):
    (tmp_path / "reference" / "step0").mkdir(parents=True)
    for name in ("task.yaml", "step0.safetensors", "step0/log.csv"):
        (tmp_path / "reference" / name).write_text("as it should be")
    shutil.copytree(tmp_path / "reference", tmp_path / "run")
    assert train.differences(tmp_path / "reference", tmp_path / "run") == []
    (tmp_path / "run" / "step0" / "log.csv").unlink()
    (tmp_path / "run" / "step0.safetensors").write_text("as it should bE")
    assert train.differences(tmp_path / "reference", tmp_path / "run") == [
        "step0.safetensors differs from the undisturbed run's",
        "step0/log.csv is missing",
    ]


def test_states_are_compared_by_what_they_hold():
    def state():
        return {"model": {"weight": torch.arange(3.0)}, "position": {"epoch": 1, "rows": [{"loss": 0.5}]}}

    assert train.same(state(), state())
    for spoil in (
        lambda found: found["model"].update(weight=torch.arange(3)),
        lambda found: found["model"].update(weight=torch.tensor([0.0, 1.0, 2.0000002])),
        lambda found: found["model"].update(weight=None),
        lambda found: found["model"].update(bias=torch.zeros(1)),
        lambda found: found["position"]["rows"].append({"loss": 0.5}),
        lambda found: found["position"].update(epoch=2),
    ):
        spoiled = state()
        spoil(spoiled)
        assert not train.same(state(), spoiled)


@pytest.fixture
def deployed(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.kill.export.problems_in", lambda folder: [])
    (tmp_path / "model.onnx").write_bytes(b"a model")
    digest = sha256_of(tmp_path / "model.onnx")
    write_json(tmp_path / "report.json", {"facts": {"model.onnx": f"7 bytes, sha256 {digest[:12]}"}})
    return tmp_path, {digest}


def test_what_can_be_wrong_with_an_export(deployed):
    folder, known = deployed
    assert export_problems(folder, known, had=True) == []
    assert export_problems(folder, {"0" * 64}, had=True) == ["the model is neither the old one nor the new one"]
    (folder / "model.onnx").write_bytes(b"another")
    both = {*known, sha256_of(folder / "model.onnx")}
    assert export_problems(folder, both, had=True) == ["the report belongs to another model"]
    (folder / "model.onnx").unlink()
    assert export_problems(folder, known, had=False) == []
    assert export_problems(folder, known, had=True) == ["the model is gone"]
    assert model_problems(folder / "model.onnx", known) == ["the model is gone"]
    (folder / "model.onnx").write_bytes(b"half")
    assert len(model_problems(folder / "model.onnx", known)) == 1


def test_what_can_be_wrong_with_a_video(tmp_path):
    make_clip(tmp_path / "seen.mp4", 3)
    outputs = {"video": {"path": str(tmp_path / "seen.mp4"), "sha256": sha256_of(tmp_path / "seen.mp4")}}
    assert receipt_problems({"status": "done", "outputs": outputs}) == []
    write_json(tmp_path / "seen.receipt.json", {"status": "running", "outputs": {}})
    (tmp_path / "seen.part.mp4").write_bytes(b"....moof....")
    assert video_problems(tmp_path) == ["the unfinished video cannot be played"]
    make_clip(tmp_path / "seen.mp4", 2)
    assert receipt_problems({"status": "done", "outputs": outputs}) == ["seen.mp4 is not what the receipt says"]
    assert receipt_problems({"status": "failed", "outputs": {}}) == ["the receipt says failed"]


def test_what_is_left_is_counted(tmp_path):
    (tmp_path / "run" / "step0").mkdir(parents=True)
    for name in (".run.lock", "run/.a.abcdefgh.part", "run/step0/seen.part.mp4", "run/step0/whole.json"):
        (tmp_path / name).write_text("")
    assert left_in(tmp_path / "run") == 3


def test_figures_are_kept_by_scenario_and_a_loss_sets_the_exit_code(tmp_path, monkeypatch, capsys):
    def loses(folder, tally, rng):
        while tally.left:
            tally.killed(after_output=True)
        tally.note("after it", ["a.json: cut off"])

    monkeypatch.setitem(command.SCENARIOS, "train", loses)
    write_json(tmp_path / "found.json", {"video": {"kills": 7}})
    assert command.main(["train", "--kills", "3", "--json", str(tmp_path / "found.json")]) == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["video"] == {"kills": 7}
    assert found["train"]["kills"] == found["train"]["kills_after_output"] == 3 and not found["train"]["ok"]
    assert found["train"]["problems"] == ["kill 3, after it: a.json: cut off"]
    assert "a.json: cut off" in capsys.readouterr().out
    assert command.main(["trian"]) == 2
    assert "Did you mean 'train'" in capsys.readouterr().err


def test_there_are_no_more_kills_when_the_time_is_over():
    assert Tally(5).left == 5
    assert Tally(5, minutes=0).left == 0
