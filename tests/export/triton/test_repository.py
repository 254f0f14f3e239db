import hashlib
import json
import shutil

import pytest
from triton_server import metadata_of, read_by_triton

from rcil.core.errors import CheckpointError, ConfigError, GateError, RcilError
from rcil.core.files import working_in
from rcil_export.engine.sidecar import EngineSidecar, TensorInfo, sidecar_path
from rcil_export.graph.description import parse_description
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.triton import repository as repository_module
from rcil_export.triton.config import described_texts
from rcil_export.triton.repository import publish
from rcil_export.triton.step_file import read_step_file

FREE = InputShape(
    batch=Extent(low=1, usual=1, high=4),
    height=Extent(low=16, usual=64, high=512),
    width=Extent(low=16, usual=96, high=512),
)
INTERFACE = Interface(shape=FREE)
STEPS = [["background", "ball"], ["cone"], ["möwe", "crane"]]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "deployed.onnx"
    path.write_bytes(b"weights of step")
    return path


@pytest.fixture
def repo(tmp_path):
    return tmp_path / "models"


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def write_engine(path, flavour):
    path.write_bytes(b"engine")
    sidecar = EngineSidecar(
        engine_sha256=hashlib.sha256(b"engine").hexdigest(),
        onnx_sha256="0" * 64,
        onnx_file="deployed.onnx",
        flavour=flavour,
        version="10.3",
        gpus=("8.6",),
        precision="fp32",
        conv_layers={},
        inputs=(TensorInfo(name="image", dtype="uint8", shape=(1, 64, 96, 3)),),
        outputs=(),
        profile=None,
        metadata={},
    )
    sidecar_path(path).write_text(sidecar.model_dump_json())
    return path


def test_steps_become_versions_and_the_labels_are_those_of_the_newest(model, repo):
    for last in range(3):
        model.write_bytes(b"weights of step %d" % last)
        version = publish(model, metadata_of(STEPS[: last + 1]), INTERFACE, repo, name="yard")
        assert version == repo / "yard" / str(last)
    assert sorted(tree(repo)) == sorted(
        ["yard/config.pbtxt", "yard/labels.txt"]
        + [f"yard/{v}/{f}" for v in range(3) for f in ("model.onnx", "step.json")]
    )
    assert (repo / "yard" / "labels.txt").read_text("utf-8") == "background\nball\ncone\nmöwe\ncrane\n"
    assert read_by_triton((repo / "yard" / "config.pbtxt").read_text())["name"] == "yard"
    for step, count in enumerate([2, 3, 5]):
        described = read_step_file(repo / "yard" / str(step))
        content = (repo / "yard" / str(step) / "model.onnx").read_bytes()
        assert content == b"weights of step %d" % step
        assert described.model_sha256 == hashlib.sha256(content).hexdigest()
        assert [c.name for c in described.classes] == [name for names in STEPS for name in names][:count]
        assert described.step == step


def test_an_older_step_added_later_leaves_the_labels(model, repo):
    publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    publish(model, metadata_of(STEPS[:2]), INTERFACE, repo, name="yard")
    assert (repo / "yard" / "labels.txt").read_text("utf-8").splitlines()[-1] == "crane"
    assert len(read_step_file(repo / "yard" / "1").classes) == 3


def test_the_version_appears_last_and_whole_under_a_name_that_is_no_number(model, repo, monkeypatch):
    states = []

    def watched(path, text, write=repository_module._write):
        write(path, text)
        states.append({str(p.relative_to(repo / "yard")) for p in (repo / "yard").rglob("*")})

    monkeypatch.setattr(repository_module, "_write", watched)
    publish(model, metadata_of(STEPS[:1]), INTERFACE, repo, name="yard")
    assert len(states) == 2
    for state in states:
        (part,) = {name for name in state if name.endswith(".part")}
        assert part.startswith(".0.")
        assert {f"{part}/model.onnx", f"{part}/step.json"} < state
        assert "0" not in state
    assert {"labels.txt", "config.pbtxt"} < states[1]


def test_a_version_is_replaced_only_with_force(model, repo):
    publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    before = tree(repo)
    model.write_bytes(b"other weights")
    with pytest.raises(RcilError, match="step 2 was published before"):
        publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    assert tree(repo) == before
    publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard", force=True)
    assert (repo / "yard" / "2" / "model.onnx").read_bytes() == b"other weights"
    assert sorted(tree(repo)) == sorted(before)
    assert [p.name for p in (repo / "yard").iterdir() if p.name.startswith(".")] == []


def test_forcing_the_only_version_may_change_its_tensors(model, repo):
    publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    other = Interface(shape=FREE, outputs=("mask", "confidence"))
    publish(model, metadata_of(STEPS), other, repo, name="yard", force=True)
    assert len(read_by_triton((repo / "yard" / "config.pbtxt").read_text())["output"]) == 2


@pytest.mark.parametrize(
    ("interface", "tensors"),
    [
        (Interface(shape=FREE, outputs=("mask", "confidence")), r"confidence fp32 \[\?, \?, \?\]"),
        (Interface(shape=InputShape.of(64, 96)), r"image uint8 \[1, 64, 96, 3\] -> mask uint8 \[1, 64, 96\]"),
    ],
)
def test_other_tensors_than_the_versions_there_are_an_error(model, repo, interface, tensors):
    publish(model, metadata_of(STEPS[:1]), INTERFACE, repo, name="yard")
    before = tree(repo)
    with pytest.raises(RcilError, match=rf"serves onnxruntime with image uint8 \[\?, .*this model is .*{tensors}"):
        publish(model, metadata_of(STEPS[:2]), interface, repo, name="yard")
    assert tree(repo) == before


@pytest.mark.parametrize("batch", [(1, 1, 8), (2, 2, 4)])
def test_other_batches_than_the_versions_there_are_an_error(model, repo, batch):
    publish(model, metadata_of(STEPS[:1]), INTERFACE, repo, name="yard")
    assert read_step_file(repo / "yard" / "0").batch == FREE.batch
    before = tree(repo)
    low, usual, high = batch
    other = Interface(shape=FREE.model_copy(update={"batch": Extent(low=low, usual=usual, high=high)}))
    with pytest.raises(RcilError, match=f"of 1 to 4 images, and this model takes {low} to {high}") as caught:
        publish(model, metadata_of(STEPS[:2]), other, repo, name="yard")
    assert "--batch 1:1:4" in caught.value.hint and "--name" in caught.value.hint
    assert tree(repo) == before
    warmer = Interface(shape=FREE.model_copy(update={"batch": Extent(low=1, usual=3, high=4)}))
    publish(model, metadata_of(STEPS[:2]), warmer, repo, name="yard")
    assert read_by_triton((repo / "yard" / "config.pbtxt").read_text())["max_batch_size"] == 4


def test_a_version_without_its_batches_is_of_an_older_exporter_and_fits(model, repo):
    version = publish(model, metadata_of(STEPS[:1]), INTERFACE, repo, name="yard")
    document = json.loads((version / "step.json").read_text())
    del document["batch"]
    (version / "step.json").write_text(json.dumps(document))
    assert read_step_file(version).batch is None
    publish(model, metadata_of(STEPS[:2]), INTERFACE, repo, name="yard")


def test_a_repository_that_is_being_written_is_refused(model, repo):
    publish(model, metadata_of(STEPS[:1]), INTERFACE, repo, name="yard")
    before = tree(repo)
    with working_in(repo / "yard"), pytest.raises(ConfigError, match=r"another process is working in .*yard"):
        publish(model, metadata_of(STEPS[:2]), INTERFACE, repo, name="yard")
    assert tree(repo) == before
    publish(model, metadata_of(STEPS[:2]), INTERFACE, repo, name="yard")


def test_a_version_that_a_kill_left_aside_is_put_back(model, repo):
    folder = repo / "yard"
    for last in (1, 2):
        publish(model, metadata_of(STEPS[:last]), INTERFACE, repo, name="yard")
    before = tree(repo)
    (folder / ".0.abcdefgh.old").mkdir()
    (folder / "0").rename(folder / ".0.abcdefgh.old" / "0")
    (folder / ".1.abcdefgh.old" / "1").mkdir(parents=True)  # its replacement came, and only the attic stayed
    with pytest.raises(RcilError, match="step 0 was published before"):
        publish(model, metadata_of(STEPS[:1]), INTERFACE, repo, name="yard")
    publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    assert {name: content for name, content in tree(repo).items() if "/2/" not in name} == before | {
        f"yard/{name}": (folder / name).read_bytes() for name in ("labels.txt", "config.pbtxt")
    }
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["0", "1", "2"]


def test_logits_change_with_the_classes(model, repo):
    interface = Interface(shape=FREE, outputs=("mask", "logits"))
    publish(model, metadata_of(STEPS[:1]), interface, repo, name="yard")
    with pytest.raises(RcilError, match=r"logits fp32 \[\?, 2, .*logits fp32 \[\?, 3, "):
        publish(model, metadata_of(STEPS[:2]), interface, repo, name="yard")


def test_a_folder_of_someone_else_is_left_alone(model, repo):
    (repo / "yard" / "7").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"yard/7/step.json"):
        publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    assert [p.name for p in (repo / "yard").iterdir()] == ["7"]


@pytest.mark.parametrize("name", ["", ".", "..", "../yard", "a/b", "/yard", 'a"b', ".yard", "a\nb", "yärd"])
def test_names_cannot_leave_the_repository_or_break_the_config(model, repo, name):
    with pytest.raises(ConfigError, match="cannot be the name"):
        publish(model, metadata_of(STEPS), INTERFACE, repo, name=name)
    assert not repo.exists()


def test_a_rejected_model_is_published_only_with_force(model, repo):
    rejected = metadata_of(STEPS).model_copy(update={"rejected": "forgot the ball"})
    with pytest.raises(GateError, match="forgot the ball"):
        publish(model, rejected, INTERFACE, repo, name="yard")
    assert not repo.exists()
    assert publish(model, rejected, INTERFACE, repo, name="yard", force=True).is_dir()


def test_classic_engines_are_served_as_plans(tmp_path, repo):
    engine = write_engine(tmp_path / "deployed.engine", "classic")
    version = publish(engine, metadata_of(STEPS), INTERFACE, repo, name="yard")
    assert (version / "model.plan").read_bytes() == b"engine"
    assert json.loads((version / "step.json").read_text())["backend"] == "tensorrt"
    assert read_by_triton((repo / "yard" / "config.pbtxt").read_text())["backend"] == "tensorrt"


def test_engines_that_triton_cannot_run_are_refused(tmp_path, model, repo):
    with pytest.raises(ConfigError, match="engine of TensorRT-RTX"):
        publish(write_engine(tmp_path / "a.engine", "rtx"), metadata_of(STEPS), INTERFACE, repo, name="yard")
    with pytest.raises(ConfigError, match=r"cannot serve .*deployed.safetensors"):
        publish(model.with_suffix(".safetensors"), metadata_of(STEPS), INTERFACE, repo, name="yard")
    with pytest.raises(RcilError, match="does not exist"):
        publish(tmp_path / "none.onnx", metadata_of(STEPS), INTERFACE, repo, name="yard")
    assert not repo.exists()


def test_a_full_disk_leaves_nothing(model, repo, monkeypatch):
    def full(source, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(RcilError, match=r"cannot write .*yard/2: No space left"):
        publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    assert list(repo.iterdir()) == []


def test_a_full_disk_keeps_the_version_that_was_to_be_replaced(model, repo, monkeypatch):
    publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard")
    before = tree(repo)
    rename = type(model).replace

    def full(path, target):
        if target == repo / "yard" / "2":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(type(model), "replace", full)
    with pytest.raises(RcilError, match="No space left"):
        publish(model, metadata_of(STEPS), INTERFACE, repo, name="yard", force=True)
    assert tree(repo) == before


def test_the_configuration_describes_every_version(model, repo):
    for last in (1, 2, 3):
        publish(model, metadata_of(STEPS[:last]), INTERFACE, repo, name="yard")
    stated = read_by_triton((repo / "yard" / "config.pbtxt").read_text())["parameters"]
    assert sorted(stated) == ["rcil.0", "rcil.1", "rcil.2"]
    for step in range(3):
        texts = described_texts(stated[f"rcil.{step}"]["string_value"])
        assert texts.pop("sha256") == hashlib.sha256(model.read_bytes()).hexdigest()
        assert parse_description(texts, "here") == (metadata_of(STEPS[: step + 1]), INTERFACE)
    assert "möwe" in [c.name for c in parse_description(texts, "here").metadata.classes]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {}}'])
def test_descriptions_that_are_none(text):
    with pytest.raises(CheckpointError, match="damaged"):
        described_texts(text)
