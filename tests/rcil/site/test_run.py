import json
import shutil

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import rcil
from rcil.checkpoint.file import load, save
from rcil.core.errors import TrainingError
from rcil.core.files import sha256_of
from rcil.core.images import read_rgb
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.site import read_site
from rcil.data.types import Sample
from rcil.model.header import read_header
from rcil.nn import build, fold
from rcil.site import run as run_module
from rcil.site import schedule
from rcil.site.request import step_request
from rcil.site.run import Display, add_class, data_digest, label_table, repeated_options


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def done(ask, tmp_path_factory):
    """An accepted run; nothing writes to it."""
    out = tmp_path_factory.mktemp("done") / "out"
    return add_class(ask(max_drop=100, min_new=0), out), out


def test_what_a_run_leaves(done, ask, old_model, site):
    report, out = done
    assert {p.name for p in out.iterdir()} == {
        *("model.safetensors", "report.json", "report.html", "report.md", "training", "add_class.yaml"),
        *(["overlays"] if report["pictures"] else []),
    }
    assert report == json.loads((out / "report.json").read_text())
    assert report["rejected"] is None and report["verdict"] == "uncertain"
    assert report["evaluated_on"] == "val" and report["images"] == 8
    assert [c["name"] for c in report["old_classes"]] == ["background", "ball"]
    assert [c["name"] for c in report["new_classes"]] == ["cone"]
    old, new = read_header(old_model).metadata, read_header(out / "model.safetensors").metadata
    assert [(c.name, c.id, c.step) for c in new.classes] == [("background", 0, 0), ("ball", 1, 0), ("cone", 2, 1)]
    assert (new.step, new.method, new.mean, new.std) == (1, "rcil", old.mean, old.std)
    assert new.rejected is None
    assert new.uncertain == report["reason"] == "forgetting was measured in only 1 scene", "all images look alike"
    entry = new.lineage[-1]
    assert new.lineage[:-1] == old.lineage
    assert (entry.source, entry.step, entry.seed) == ("rcil add-class", 1, 0)
    assert entry.parent_sha256 == sha256_of(old_model)
    assert entry.data_sha256 == data_digest(read_site(site).splits["train"])
    assert entry.config["classes"] == ["cone"]
    assert entry.metrics["drop background"] == report["old_classes"][0]["drop"]
    assert entry.metrics["training_images"] > 0 and entry.metrics["held_out_images"] > 0
    assert entry.metrics["iou cone"] == report["new_classes"][0]["iou"]
    assert new.architecture.rc.frozen


def test_pictures_of_what_differs(done):
    report, out = done
    assert len(report["pictures"]) == 3, "all images look alike"
    for shown in report["pictures"]:
        picture = read_rgb(out / "overlays" / shown["file"])
        assert picture.shape[1] == 3 * (3 * 96 + 8)
        assert picture.std() > 10
    page = (out / "report.html").read_text()
    assert page.count("data:image/jpeg") == 3
    assert page.count("data:image/png") == 3, "intervals, training curves and confusion"


def test_the_old_model_is_folded_once(ask, tmp_path, monkeypatch):
    folded = []

    def counted(network):
        folded.append(len(network.names))
        return fold(network)

    monkeypatch.setattr("rcil.inference.fold", counted)
    add_class(ask(method={"name": "rcil-plus"}), tmp_path / "out")
    assert folded.count(2) == 1, "the old model has two classes, the new one three"


def test_the_best_epoch_is_chosen_by_completed_masks(ask, cones, tmp_path, monkeypatch):
    """Balls have no labels here; the old model's predictions stand for them."""
    jobs = []

    def look(job, *rest):
        jobs.append(job)
        raise KeyboardInterrupt

    monkeypatch.setattr("rcil.inference.Model.segment", lambda *args, **options: np.ones((64, 96), np.uint8))
    monkeypatch.setattr(run_module, "train_step", look)
    with pytest.raises(KeyboardInterrupt):
        add_class(ask(data=cones), tmp_path / "out")
    (job,) = jobs
    assert job.data.names == ("background", "ball", "cone")
    assert job.validation
    for sample in job.validation:
        assert {*np.unique(read_mask(sample.mask))} == {1, 2}
    for sample, table in zip(job.crops.samples, job.crops.tables, strict=True):
        assert {*np.unique(table[read_mask(sample.mask)])} == {0, 2}, "labels as asked"
    assert not (tmp_path / "out" / "report.json").exists()


def test_masks_are_completed_only_for_a_validation(ask, cones, tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "train_step", stop)
    for keep in ("best", "last"):
        with pytest.raises(KeyboardInterrupt):
            add_class(ask(f"training.keep={keep}", data=cones), tmp_path / keep)
    assert len(list((tmp_path / "best" / "training" / "held_out").rglob("*.png"))) == 1
    assert not (tmp_path / "last" / "training" / "held_out").exists()


@pytest.mark.parametrize("option", ["class_weights=enet", "freeze_stages=3"])
def test_training_options_take_part(done, ask, tmp_path, option):
    add_class(ask(f"training.{option}", max_drop=100, min_new=0), tmp_path / "out")
    plain, other = (load_file(folder / "model.safetensors") for folder in (done[1], tmp_path / "out"))
    assert any(not torch.equal(plain[key], other[key]) for key in plain)
    if option.startswith("freeze"):
        weights = [key for key in other if key.startswith("backbone.stages.0.") and key.endswith("new.conv.weight")]
        assert weights and not any(torch.equal(plain[key], other[key]) for key in weights)


def test_resume_on_a_finished_run_trains_nothing(done, ask, monkeypatch):
    report, out = done
    monkeypatch.setattr(run_module, "train_step", lambda *args: pytest.fail("trained again"))
    monkeypatch.setattr(run_module, "preflight", lambda *args, **options: pytest.fail("looked again"))
    before = sha256_of(out / "model.safetensors")
    assert add_class(ask(max_drop=100, min_new=0), out, resume=True) == report
    assert sha256_of(out / "model.safetensors") == before


def test_resume_after_training_judges_without_training(done, ask, tmp_path):
    report, finished = done
    out = shutil.copytree(finished, tmp_path / "out")
    for name in ("report.json", "report.md", "model.safetensors"):
        (out / name).unlink()
    seen = []

    def training():
        return run_module.nullcontext(seen.append)

    again = add_class(ask(max_drop=100, min_new=0), out, resume=True, display=Display(training=training))
    assert {**again, "next": None} == {**report, "next": None}, "the advice names the folder"
    assert seen == []
    assert (out / "model.safetensors").exists()


def test_the_recipe_is_derived_recorded_and_resumed(old_model, site, tmp_path, monkeypatch):
    """One real trial; the resumed run keeps its numbers although the machine would now allow others."""
    for name in ("MIN_ITERATIONS", "MAX_ITERATIONS", "MIN_USEFUL"):
        monkeypatch.setattr(schedule, name, 8)
    training = {"workers": 0, "batch": 4, "save_every": 1}
    request = step_request(old_model, site, ["cone"], method="rcil-plus", training=training, overrides=(), max_drop=100)
    assert request.training.crop == 256, "the site recipe"
    lines, out = [], tmp_path / "out"

    def stop():
        def listen(event):
            if event.iteration == 2:
                raise KeyboardInterrupt

        return run_module.nullcontext(listen)

    with pytest.raises(KeyboardInterrupt):
        add_class(request, out, display=Display(training=stop, explain=lines.append))
    (line,) = lines
    assert "crop 64 (the size of the images)" in line and "8 iterations, about" in line
    record = yaml.safe_load((out / "add_class.yaml").read_text())
    assert record["training"]["epochs"] == [4, 4] and record["training"]["epoch_images"] == 8
    monkeypatch.setattr(run_module, "measure_costs", lambda *args: pytest.fail("timed again"))
    report = add_class(request, out, resume=True, display=Display(explain=lines.append))
    assert len(lines) == 1
    assert report["recipe"]["training.crop"] == {"value": 64, "reason": "the size of the images"}
    config = read_header(out / "model.safetensors").metadata.lineage[-1].config
    assert config["training"] == record["training"] and config["derived"] == record["derived"]
    again = step_request(out / "model.safetensors", site, ["x"], method="rcil-plus", training={}, overrides=())
    assert (again.training.crop, again.training.batch) == (64, 4)
    assert again.derived["training.crop"] == "from the checkpoint"


def test_validations_use_as_many_images_as_asked(ask, tmp_path, monkeypatch):
    jobs = []

    def look(job, *rest):
        jobs.append(job)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "train_step", look)
    for number in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            add_class(ask("training.held_out=0.5", f"training.validate_images={number}"), tmp_path / str(number))
    assert [len(job.validation) for job in jobs] == [1, 2]


def test_the_gate(done, ask, tmp_path, monkeypatch):
    """The same network, judged with another limit: what is lost is a fact, whether it is too much is the limit's."""
    report, out = done
    drop = report["largest_drop"]
    assert drop > 0.1, "something must have been lost for this test"
    monkeypatch.setattr(run_module, "train_step", lambda *args: load(out / "training" / "best.safetensors")[0])
    limit = round(drop / 2, 2)
    tight = add_class(ask(max_drop=limit, min_new=0), tmp_path / "tight")
    assert tight["verdict"] == "rejected"
    assert tight["rejected"] == f"ball dropped {drop:.1f} points, limit {limit:g}"
    assert read_header(tmp_path / "tight" / "model.safetensors").metadata.rejected == tight["rejected"]
    for name in ("report.md", "report.html"):
        assert "REJECTED" in (tmp_path / "tight" / name).read_text()
        assert "REJECTED" not in (out / name).read_text()


def old_logits(path, images):
    with torch.no_grad():
        logits: torch.Tensor = load(path)[0](images, maps="before").logits_small
    return logits


def test_another_attempt_has_the_same_limits_and_scale(ask):
    request = ask(max_drop=7.5, min_new=0, scale=0.5)
    assert repeated_options(request) == ("--scale", "0.5", "--max-drop", "7.5", "--min-new", "0")
    derived = request.model_copy(update={"derived": {"scale": "from the checkpoint"}, "max_background_drop": 3})
    assert repeated_options(derived)[-2:] == ("--max-background-drop", "3")
    assert "--scale" not in repeated_options(derived)


def test_strict_keeps_old_logits_to_the_bit(ask, done, old_model, tmp_path, images):
    add_class(ask("method.name=strict", max_drop=0, min_new=0), tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    before, after = old_logits(old_model, images), old_logits(path, images)
    assert torch.equal(after[:, :2], before)
    assert not torch.equal(after[:, 2], after[:, 0]), "the new row has learned"
    assert not torch.equal(old_logits(done[1] / "model.safetensors", images)[:, :2], before), "rcil changes the network"
    assert read_header(path).metadata.architecture == read_header(old_model).metadata.architecture


@pytest.fixture(scope="module")
def folded_model(old_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("folded") / "folded.safetensors"
    rcil.load(old_model).fold().save(path)
    return path


@pytest.mark.parametrize("method", ["rcil", "rcil-plus", "mib", "fine-tuning"])
def test_a_folded_model_can_learn(ask, folded_model, tmp_path, method):
    seen = []
    request = ask(f"method.name={method}", model=folded_model, max_drop=100)
    add_class(request, tmp_path / "out", display=Display(announce=seen.append))
    new = read_header(tmp_path / "out" / "model.safetensors").metadata
    assert [(c.name, c.step) for c in new.classes] == [("background", 0), ("ball", 0), ("cone", 1)]
    assert not new.architecture.folded and (new.architecture.rc is not None) == method.startswith("rcil")
    entry = new.lineage[-1]
    assert [e.source for e in new.lineage] == ["train", "fold", "rcil add-class"]
    assert entry.parent_sha256 == sha256_of(folded_model)
    assert entry.metrics["norm_images"] == seen[0].ready.norm_images == len(seen[0].ready.train)


def test_norms_are_fitted_to_the_training_crops(ask, folded_model, images, tmp_path, monkeypatch):
    """The step begins with the function of the folded model, and with the batch statistics of its first epoch."""
    began = []

    def look(job, student, previous, *rest):
        began.append((job, student, previous))
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "train_step", look)
    with pytest.raises(KeyboardInterrupt):
        add_class(ask(model=folded_model), tmp_path / "out")
    ((job, student, previous),) = began
    crops = torch.stack([job.crops[0, number][0] for number in range(len(job.crops))])
    with torch.no_grad():
        old = load(folded_model)[0](images)
        torch.testing.assert_close(student.eval()(images)[:, 1], old[:, 1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(previous.network.train()(crops), load(folded_model)[0](crops), rtol=1e-3, atol=1e-3)


def test_strict_keeps_a_folded_model_folded(ask, folded_model, tmp_path, images):
    """Rows are appended, and nothing else differs; a further step can start from the result."""
    out, then = tmp_path / "out", tmp_path / "then"
    add_class(ask("method.name=strict", model=folded_model, max_drop=100), out)
    path = out / "model.safetensors"
    before, after = load_file(folded_model), load_file(path)
    assert before.keys() == after.keys() and read_header(path).metadata.architecture.folded
    assert all(torch.equal(after[key][: len(value)], value) for key, value in before.items())
    assert torch.equal(old_logits(path, images)[:, :2], old_logits(folded_model, images))
    assert "norm_images" not in read_header(path).metadata.lineage[-1].metrics
    root = shutil.copytree(ask().data, tmp_path / "site")
    (root / "classes.txt").write_text("background\nball\nbox\n")
    report = add_class(ask(model=path, data=root, classes=["box"], max_drop=100), then)
    assert [c["name"] for c in report["old_classes"]] == ["background", "ball", "cone"]


def test_two_classes_for_a_plain_network(ask, old_model, site, tmp_path):
    """The site does not know the old class, and the network gets branches."""
    root = shutil.copytree(site, tmp_path / "site")
    (root / "classes.txt").write_text("background\nbox\ncone\n")
    metadata = read_header(old_model).metadata
    model = build(metadata.architecture.replace(rc=None), metadata.names_by_step)
    save(tmp_path / "plain.safetensors", model, metadata)
    report = add_class(
        ask(model=tmp_path / "plain.safetensors", data=root, classes=["cone", "box"], max_drop=100, min_new=0),
        tmp_path / "out",
    )
    assert [c["name"] for c in report["new_classes"]] == ["cone", "box"]
    new = read_header(tmp_path / "out" / "model.safetensors").metadata
    assert [(c.name, c.id) for c in new.classes] == [("background", 0), ("ball", 1), ("cone", 2), ("box", 3)]
    assert len({c.colour for c in new.classes}) == 4
    assert new.architecture.rc.frozen


def test_errors_leave_nothing(ask, tmp_path):
    seen = []
    with pytest.raises(DataError, match="class kone"):
        add_class(ask(classes=["kone"]), tmp_path / "out", display=Display(announce=seen.append))
    assert not (tmp_path / "out").exists()
    assert len(seen) == 1 and seen[0].errors


def test_labels_name_old_and_new_classes_but_no_others(site, described):
    table = label_table(read_site(site), described(["background", "ball"], ["cone"]))
    ball, cone = (read_site(site).names.index(name) for name in ("ball", "cone"))
    others = [value for value in range(255) if value not in (ball, cone)]
    assert (table[ball], table[cone], table[255]) == (1, 2, 255)
    assert not table[others].any()


def test_the_digest_sees_names_images_and_masks(tmp_path):
    for name in "abcd":
        (tmp_path / name).write_text(name)
    a, b, c, d = (tmp_path / name for name in "abcd")
    base = [Sample("x", a, b), Sample("y", c, d)]
    assert data_digest(base) == data_digest(base[::-1])
    others = [[Sample("z", a, b), base[1]], [Sample("x", c, b), base[1]], [Sample("x", a, c), base[1]], base[:1]]
    assert len({data_digest(samples) for samples in (base, *others)}) == 5


@pytest.mark.parametrize("text", ["", "[" * 100_000, "\xff"])
def test_a_damaged_report_is_named(tmp_path, text):
    (tmp_path / "report.json").write_text(text, encoding="latin-1")
    with pytest.raises(TrainingError, match=r"cannot read .*report\.json\nDelete it"):
        run_module.read_report(tmp_path / "report.json")
