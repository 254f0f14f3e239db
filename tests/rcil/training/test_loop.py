"""One batch in pieces, in several processes, in other number formats: the same gradient."""

import csv
import dataclasses
import itertools
import os
import subprocess
import sys

import pytest
import torch
import yaml
from networks import small_arch
from safetensors.torch import load_file

from rcil.checkpoint.file import load
from rcil.core.errors import ConfigError, TrainingError
from rcil.core.images import read_rgb
from rcil.data.site import read_site
from rcil.hardware.processes import ALONE, device_for, join
from rcil.inference import as_input
from rcil.methods import StepInfo, make_method
from rcil.model.header import read_header
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build
from rcil.tasks.load import load_task
from rcil.tasks.task import TrainingSection
from rcil.training import loop
from rcil.training.loop import StepJob, _learn, _new_state, _placed
from rcil.training.optimiser import make_schedule, parameter_groups
from rcil.training.run import check_pieces, run_task
from rcil.training.run_record import record_task


def one_batch(pieces, precision="fp32", channels_last=False):
    """Gradients and loss terms of four images in evaluation mode, so that norms do not see the division."""
    torch.manual_seed(0)
    names = [["background", "ball"]]
    student = build(small_arch("resnet18"), names).eval()
    method = make_method("rcil")
    settings = TrainingSection(batch=4, precision=precision, channels_last=channels_last)
    metadata = Metadata(architecture=student.arch, classes=class_table(names))
    job = StepJob(0, StepInfo(0, 2), metadata, None, None, (), settings, 1.0, None, ALONE)
    student = _placed(student, job)
    state = _new_state(student, method, job, 10)
    images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 2, (4, 64, 64))
    terms = _learn(student, None, state, list(zip(images.chunk(pieces), labels.chunk(pieces), strict=True)), job)
    state.scaler.unscale_(state.optimiser)
    return torch.cat([p.grad.flatten() for p in student.parameters() if p.grad is not None]), terms


def test_pieces_add_up_to_the_batch():
    whole, terms = one_batch(1)
    for pieces in (2, 4):
        parts, also = one_batch(pieces)
        assert torch.allclose(parts, whole, rtol=1e-4, atol=1e-6 * whole.abs().max().item())
        assert also == pytest.approx(terms, rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_points_the_same_way(precision):
    exact, terms = one_batch(1)
    mixed, also = one_batch(1, precision)
    assert also == pytest.approx(terms, rel=0.02)
    assert torch.nn.functional.cosine_similarity(exact, mixed, dim=0) > 0.98
    assert 0.9 < mixed.norm() / exact.norm() < 1.1, "the scaler's factor must be taken out again"


def test_fp16_trains_and_saves_its_scaler(task_file, tmp_path):
    run_task(load_task(task_file, ["training.precision=fp16", "training.epochs=[1, 1]"]), tmp_path / "run")
    state = torch.load(tmp_path / "run" / "step1" / "state.pt", weights_only=True)
    assert state["scaler"]["scale"] > 0


def test_channels_last_computes_the_same():
    whole, terms = one_batch(1)
    other, also = one_batch(1, channels_last=True)
    assert also == pytest.approx(terms, rel=1e-5)
    assert torch.allclose(other, whole, rtol=1e-4, atol=1e-5 * whole.abs().max().item())


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in ("plop", "rcil-plus")]


@pytest.mark.parametrize("method", ["rcil", *SLOWER])
def test_two_processes_equal_one_with_the_whole_batch(task_file, tmp_path, method):
    """Gloo and synchronised norms; PLOP also sums its histograms over the processes. One set of logs."""
    overrides = ["training.epochs=[1, 1]", f"method.name={method}", "network.norm=abs", "training.lr=[0.01, 0.001]"]
    run_task(load_task(task_file, overrides), tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "rcil"]
    command += ["train", str(task_file), "-o", str(tmp_path / "two"), *(a for o in overrides for a in ("--set", o))]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 1, epoch 1/1") == 1, "one process reports"
    for step in (0, 1):
        one, two = (load_file(tmp_path / name / f"step{step}.safetensors") for name in ("one", "two"))
        for key, value in one.items():
            fitted = method == "rcil-plus" and key.startswith("classifier")  # nearly flat problems: the answers tell
            if value.is_floating_point() and not fitted:
                assert torch.allclose(two[key], value, rtol=1e-3, atol=(2e-5, 1e-3)[step]), (step, key)
        logs = [
            list(csv.DictReader((tmp_path / name / f"step{step}" / "log.csv").read_text().splitlines()))
            for name in ("one", "two")
        ]
        for a, b in zip(*logs, strict=True):
            assert numbers(b) == pytest.approx(numbers(a), rel=1e-3), "every iteration has the same losses"
        one, two = (answers(tmp_path / name / f"step{step}.safetensors", task_file) for name in ("one", "two"))
        if (method, step) != ("rcil-plus", 1):  # balanced biases move by a quarter or not at all: rounding decides
            assert torch.allclose(two, one, atol=0.01), step


def answers(path, task_file):
    """A checkpoint's probabilities for every pixel of a training image."""
    model, metadata = load(path)
    sample = read_site(task_file.parent / "site").splits["train"][0]
    with torch.no_grad():
        return model.eval()(as_input(metadata, read_rgb(sample.image))[None]).softmax(dim=1)


def numbers(row):
    """The loss terms of a line of the log."""
    return {key: float(value) for key, value in row.items() if value and key != "held_out_miou"}


def test_batches_that_cannot_be_shared_are_refused():
    with pytest.raises(ConfigError, match=r"multiple of 6"):
        check_pieces(8, 3, 2)
    with pytest.raises(ConfigError, match="no batch statistics"):
        check_pieces(4, 4, 1)
    check_pieces(8, 2, 2)


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"no GPU"), join("cuda"):
        pass
    with join("auto") as alone:
        assert (alone.count, alone.device.type, alone.leads) == (1, "cpu", True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_for("auto") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ConfigError, match="process 1 has no GPU"):
        device_for("auto")


def test_held_out_images_are_looked_at_as_often_as_asked_and_at_the_end(task_file, tmp_path):
    overrides = ["training.epochs=[5, 1]", "training.validate_every=2"]
    run_task(load_task(task_file, overrides), tmp_path / "run")
    with (tmp_path / "run" / "step0" / "log.csv").open() as file:
        looked = [int(row["epoch"]) for row in csv.DictReader(file) if row["held_out_miou"]]
    assert looked == [1, 3, 4]


def worse_every_epoch(monkeypatch):
    """Pretend that the mIoU of the held-out images is 0.9, 0.8, 0.7... after each validation."""
    real, count = loop._validate, itertools.count(1)

    def validate(model, job):
        report = real(model, job)
        miou = 1 - next(count) / 10
        return dataclasses.replace(report, all=miou)

    monkeypatch.setattr(loop, "_validate", validate)


def log_of(folder):
    with (folder / "log.csv").open() as file:
        return list(csv.DictReader(file))


class TestKeep:
    ONE_STEP = ("protocol.steps=[[ball]]", "training.epochs=[3, 1]")

    @pytest.mark.parametrize(("keep", "kept", "miou"), [("best", 0, 0.9), ("last", 2, 0.7)])
    def test_the_best_or_the_last_epoch(self, task_file, tmp_path, monkeypatch, keep, kept, miou):
        worse_every_epoch(monkeypatch)
        overrides = [*self.ONE_STEP, f"training.keep={keep}", "training.validate_every=1"]
        run_task(load_task(task_file, overrides), tmp_path / "run")
        measured = [float(row["held_out_miou"]) for row in log_of(tmp_path / "run" / "step0") if row["held_out_miou"]]
        assert measured == pytest.approx([0.9, 0.8, 0.7])
        metrics = read_header(tmp_path / "run" / "step0.safetensors").metadata.lineage[-1].metrics
        assert (metrics["best_epoch"], metrics["held_out_miou"]) == (kept, pytest.approx(miou))
        final = torch.load(tmp_path / "run" / "step0" / "state.pt", weights_only=True)["model"]
        stored = load_file(tmp_path / "run" / "step0.safetensors")
        body = [key for key in stored if key in final and not key.startswith("classifier")]
        assert len(body) > 50
        assert all(torch.equal(stored[key], final[key]) for key in body) == (keep == "last")

    def test_the_last_epoch_needs_no_validation(self, task_file, tmp_path, monkeypatch):
        monkeypatch.setattr(loop, "_validate", lambda *args: pytest.fail("validated"))
        events = []
        run_task(load_task(task_file, [*self.ONE_STEP, "training.keep=last"]), tmp_path / "run", listen=events.append)
        assert "held_out_miou" not in log_of(tmp_path / "run" / "step0")[0]
        assert [event.epoch for event in events if event.finished] == [0, 1, 2]
        metrics = read_header(tmp_path / "run" / "step0.safetensors").metadata.lineage[-1].metrics
        assert metrics["best_epoch"] == 2
        assert "held_out_miou" not in metrics

    def test_interrupted_after_the_last_epoch(self, task_file, tmp_path):
        task = load_task(task_file, [*self.ONE_STEP, "training.keep=last", "training.settle=1"])
        run_task(task, tmp_path / "whole")

        def interrupt(event):
            if event.finished and event.epoch == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_task(task, tmp_path / "cut", listen=interrupt)
        run_task(task, tmp_path / "cut", resume=True)
        whole, cut = (load_file(tmp_path / name / "step0.safetensors") for name in ("whole", "cut"))
        assert all(torch.equal(cut[key], value) for key, value in whole.items())

    def test_defaults_of_validation(self):
        assert TrainingSection().validate_every == TrainingSection(keep="best", validate_every=None).validate_every == 1
        assert TrainingSection(keep="last").validate_every is None
        validated = [epoch for epoch in range(1, 6) if TrainingSection(validate_every=2).validates(epoch, 5)]
        assert validated == [2, 4, 5]


def test_a_run_that_an_earlier_version_started_is_continued(task_file, tmp_path):
    """Its record has no `keep`, and validates every epoch."""
    task = load_task(task_file)
    record_task(tmp_path / "run", task, resume=False)
    record = tmp_path / "run" / "task.yaml"
    document = yaml.safe_load(record.read_text())
    assert (document["training"].pop("keep"), document["training"]["validate_every"]) == ("best", 1)
    record.write_text(yaml.safe_dump(document))
    record_task(tmp_path / "run", task, resume=True)
    with pytest.raises(TrainingError, match="another task"):
        record_task(tmp_path / "run", load_task(task_file, ["training.keep=last"]), resume=True)


def moved(settings):
    """How far weights of the stem and of the classifier move in one iteration with large gradients."""
    torch.manual_seed(0)
    student = build(small_arch("resnet18"), [["background", "ball"]])
    metadata = Metadata(architecture=student.arch, classes=class_table([["background", "ball"]]))
    job = StepJob(0, StepInfo(0, 2), metadata, None, None, (), settings, 1.0, None, ALONE)
    state = _new_state(student, make_method("rcil"), job, 10)
    weights = student.backbone.stem.conv.weight, student.classifier.groups[0].weight
    before = [weight.detach().clone() for weight in weights]
    for parameter in student.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e3
    state.optimiser.step()
    return [(weight - was).abs() for weight, was in zip(weights, before, strict=True)]


def test_adamw_moves_every_weight_by_the_learning_rate_at_first():
    settings = TrainingSection(batch=4, optimiser="adamw", lr=(0.01, 0.01), weight_decay=0)
    for distance in moved(settings):
        assert torch.allclose(distance, torch.tensor(0.01), rtol=1e-3)


def test_the_classifier_may_learn_faster():
    settings = TrainingSection(batch=4, optimiser="adamw", lr=(0.01, 0.01), weight_decay=0, classifier_lr=3)
    body, rows = moved(settings)
    assert torch.allclose(body, torch.tensor(0.01), rtol=1e-3)
    assert torch.allclose(rows, torch.tensor(0.03), rtol=1e-3)


def rates(epochs, warmup, total=20):
    settings = TrainingSection(epochs=(epochs, epochs), warmup=warmup)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make_schedule(optimiser, settings, total, round(total * warmup / epochs))
    seen = []
    for _ in range(total):
        seen.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()
    return seen


def test_warmup_rises_linearly_then_decays_polynomially():
    seen = rates(epochs=5, warmup=1)
    assert seen[:5] == pytest.approx([0.01, 0.01 + 0.99 / 4, 0.01 + 2 * 0.99 / 4, 0.01 + 3 * 0.99 / 4, 1.0])
    assert seen[4:] == pytest.approx([(1 - i / 16) ** 0.9 for i in range(16)])


def test_without_warmup_the_decay_starts_at_once():
    assert rates(epochs=5, warmup=0) == pytest.approx([(1 - i / 20) ** 0.9 for i in range(20)])


def test_learning_rates_of_backbone_head_and_classifier():
    model = build(small_arch("resnet18"), [["background", "ball"]])
    settings = TrainingSection(lr=(0.1, 0.01), backbone_lr=0.5, classifier_lr=4)
    groups = parameter_groups(model, settings, later=1)
    assert [group["lr"] for group in groups] == pytest.approx([0.005, 0.01, 0.04])
    counts = [sum(p.numel() for p in part.parameters()) for part in (model.backbone, model.head, model.classifier)]
    assert [sum(p.numel() for p in group["params"]) for group in groups] == counts


@pytest.mark.parametrize(
    "option",
    ["ema=0.9", "warmup=1", "class_weights=median_frequency", "freeze_stages=2", "jitter=0.2", "oversample=0.5"],
)
def test_an_interrupted_run_with_the_option_ends_bit_identical(task_file, tmp_path, option):
    """The option takes part in the training, and its state is kept."""
    run_task(load_task(task_file), tmp_path / "plain")
    task = load_task(task_file, [f"training.{option}"])
    whole = run_task(task, tmp_path / "whole")
    seen = []

    def stop(event):
        seen.append(event)
        if len(seen) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(task, tmp_path / "cut", listen=stop)
    assert run_task(task, tmp_path / "cut", resume=True) == whole
    cut, uncut, plain = (load_file(tmp_path / name / "step1.safetensors") for name in ("cut", "whole", "plain"))
    assert all(torch.equal(cut[key], uncut[key]) for key in uncut)
    assert any(not torch.equal(plain[key], uncut[key]) for key in uncut)


def test_class_weights_without_effect_are_refused(task_file, tmp_path):
    task = load_task(task_file, ["method.name=lwf-mc", "training.class_weights=enet"])
    with pytest.raises(ConfigError, match="no effect on lwf-mc"):
        run_task(task, tmp_path / "run")


def test_void_background_is_not_trained_nor_counted(task_file, tmp_path):
    result = run_task(load_task(task_file, ["data.void_background=true"]), tmp_path / "run")
    classes = {c["name"]: c for c in result["steps"][-1]["classes"]}
    assert classes["background"]["pixels"] == 0
    named = [c["iou"] for name, c in classes.items() if name != "background"]
    assert result["steps"][-1]["miou"]["all"] == pytest.approx(sum(named) / len(named))
