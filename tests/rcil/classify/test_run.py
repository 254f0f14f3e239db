import json
import shutil

import numpy as np
import pytest
import torch
from networks import at_step, small_arch
from safetensors.torch import load_file

from rcil.checkpoint.file import load, save
from rcil.classify import run as module
from rcil.classify.checkpoint import load_classifier, save_classifier
from rcil.classify.data import ClassificationData
from rcil.classify.network import fold_classifier
from rcil.classify.run import run_classify
from rcil.core.errors import CheckpointError, TrainingError
from rcil.core.files import sha256_of
from rcil.model.header import read_header
from rcil.model.metadata import Metadata, class_table


def test_all_steps_are_trained_kept_and_described(finished):
    _, out, document = finished["eeil"]
    assert document == json.loads((out / "results.json").read_text())
    assert [len(step["classes"]) for step in document["steps"]] == [2, 4, 6]
    assert [step["images"] for step in document["steps"]] == [6, 12, 18]
    assert document["steps"][0]["accuracy"]["old"] is None
    overall = [step["accuracy"]["all"] for step in document["steps"]]
    assert document["average_incremental_accuracy"] == pytest.approx(sum(overall) / 3)
    for step in document["steps"]:
        assert step["accuracy"]["all"] == pytest.approx(np.mean(list(step["classes"].values())))
    metadata = read_header(out / "step2.safetensors").metadata
    assert (metadata.kind, metadata.head, metadata.size, metadata.step) == ("classifier", "linear", 16, 2)
    assert metadata.names_by_step == [step["teaches"] for step in document["steps"]]
    assert metadata.lineage[-1].parent_sha256 == sha256_of(out / "step1.safetensors")
    assert len(metadata.lineage) == 3


def test_the_memory_holds_images_of_its_class(finished):
    task, out, document = finished["eeil"]
    names = sorted(path.name for path in (task.data.root / "train").iterdir())
    memory = json.loads((out / "step2.memory.json").read_text())
    assert list(memory) == list(document["steps"][2]["classes"])
    for name, places in memory.items():
        assert len(set(places)) == 2
        assert {place // 6 for place in places} == {names.index(name)}, "six training images a class, in order"


@pytest.mark.parametrize("name", ["eeil", "podnet"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(finished, tmp_path, monkeypatch, name):
    task, out, whole = finished[name]
    for index in range(2):
        for file in (f"step{index}.safetensors", f"step{index}.memory.json", "task.yaml"):
            shutil.copy(out / file, tmp_path)
    (tmp_path / "step2.memory.json").write_text("{}")  # the step ended between its two files
    trained, said, real = [], [], module.train_step
    monkeypatch.setattr(module, "train_step", lambda job, *rest: (trained.append(job.index), real(job, *rest)))
    assert run_classify(task, tmp_path, say=said.append) == whole
    assert trained == [2], "finished steps are kept"
    assert [text[:7] for text in said] == ["step 0:", "step 1:", "step 2:"]
    first, second = (load_file(folder / "step2.safetensors") for folder in (out, tmp_path))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_an_interrupted_step_leaves_no_checkpoint(finished, copied, monkeypatch):
    task, out = copied
    (out / "step2.safetensors").unlink()
    monkeypatch.setattr(module, "tune", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_classify(task, out)
    assert not (out / "step2.safetensors").exists()


def test_folders_of_other_tasks_and_other_images_are_refused(copied, monkeypatch):
    task, out = copied
    with pytest.raises(TrainingError, match="started with another task"):
        run_classify(task.model_copy(update={"seed": 9}), out)
    monkeypatch.setattr(ClassificationData, "digest", lambda self: "other")
    with pytest.raises(TrainingError, match="was trained on different images"):
        run_classify(task, out)
    (out / "task.yaml").write_text("[")
    with pytest.raises(TrainingError, match=r"cannot read .*task\.yaml"):
        run_classify(task, out)


@pytest.mark.parametrize("name", ["eeil", "podnet"])
def test_checkpoints_rebuild_the_network(finished, tmp_path, name):
    model, metadata = load_classifier(finished[name][1] / "step1.safetensors")
    x = torch.randn(2, 3, 16, 16)
    folded = fold_classifier(model)[0]
    save_classifier(tmp_path / "folded.safetensors", folded, metadata)
    again, stored = load_classifier(tmp_path / "folded.safetensors")
    with torch.no_grad():
        assert torch.equal(again(x), folded(x))
        assert torch.allclose(again(x), model(x), atol=1e-4)
    assert stored.architecture.folded and not metadata.architecture.folded
    assert stored.cost.macs == metadata.cost.folded_macs
    assert (metadata.cost.macs > metadata.cost.folded_macs) == (name == "eeil"), "the other has no second branch"
    other = metadata.model_copy(update={"classes": class_table([["z"]])})
    with pytest.raises(CheckpointError, match="class table"):
        save_classifier(tmp_path / "x.safetensors", model, other)


def test_segmenters_and_classifiers_are_told_apart(finished, tmp_path):
    path = finished["eeil"][1] / "step0.safetensors"
    with pytest.raises(CheckpointError, match="classifier of whole images, not a segmenter"):
        load(path)
    with pytest.raises(CheckpointError, match="does not output masks"):
        Metadata.model_validate_json(read_header(path).metadata.model_dump_json())
    model = at_step(small_arch(), 0)
    save(tmp_path / "s.safetensors", model, Metadata(architecture=model.arch, classes=class_table([list(model.names)])))
    with pytest.raises(CheckpointError, match="holds a segmenter"):
        load_classifier(tmp_path / "s.safetensors")
