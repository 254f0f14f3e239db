"""Attached models: weights in, checkpoints, permission, a step on a site, folding back; the commands."""

import json
from math import isnan

import numpy as np
import pytest
import torch
import yaml
from odd_networks import NAMES, Plain
from safetensors.torch import save_file
from sites import make_site
from typer.testing import CliRunner

import rcil
import rcil.attaching.check
from rcil.attaching.check import check_network
from rcil.cli.app import app
from rcil.core.allowed_imports import _ALLOWED, allowing
from rcil.core.errors import CheckpointError, ConfigError
from rcil.model.header import read_header
from rcil.tasks.load import load_task
from rcil.training.run import run_task

FACTORY, ARGS = "odd_networks:Plain", {"classes": 3}
IMAGE = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)


@pytest.fixture(autouse=True)
def nothing_allowed():
    """Each test starts without allowed packages, whatever others allowed."""
    token = _ALLOWED.set(frozenset())
    yield
    _ALLOWED.reset(token)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Plain(**ARGS)


def attach(net, **options):
    return rcil.attach(net, ARGS, factory=FACTORY, classes=NAMES, **options)


@torch.no_grad()
def logits_of(net, image):
    x = torch.from_numpy(image).permute(2, 0, 1).float()[None] / 255
    return net.eval()(
        (x - torch.tensor((0.485, 0.456, 0.406)).view(1, 3, 1, 1))
        / torch.tensor((0.229, 0.224, 0.225)).view(1, 3, 1, 1)
    )["out"]


class TestFiles:
    def test_a_checkpoint_needs_permission(self, net, tmp_path):
        path = tmp_path / "model.safetensors"
        model = attach(net)
        model.save(path)
        _ALLOWED.set(frozenset())
        assert read_header(path).metadata.architecture.factory == FACTORY
        with pytest.raises(ConfigError, match="'odd_networks', which is not allowed"):
            rcil.load(path)
        loaded = rcil.load(path, allow=["odd_networks"])
        assert torch.equal(loaded.logits([IMAGE]), model.logits([IMAGE]))
        with pytest.raises(ConfigError, match="not allowed"):
            rcil.load(path)  # the permission was for one call

    def test_the_model_computes_what_the_network_computes(self, net):
        assert (attach(net).logits([IMAGE]) - logits_of(net, IMAGE)).abs().max() < 1e-5

    @pytest.mark.parametrize("kind", ["pth", "safetensors"])
    def test_weights(self, net, tmp_path, kind):
        path = tmp_path / f"weights.{kind}"
        (torch.save if kind == "pth" else save_file)(net.state_dict(), path)
        model = rcil.attach(FACTORY, ARGS, weights=path, classes=NAMES)
        assert (model.logits([IMAGE]) - logits_of(net, IMAGE)).abs().max() < 1e-5

    @pytest.mark.parametrize(
        ("container", "prefix"),
        [(None, "module."), ("state_dict", "model."), ("model", "module._orig_mod."), ("net", ""), ("network", "a.b.")],
    )
    def test_weights_as_training_programs_store_them(self, net, tmp_path, container, prefix):
        tensors = {f"{prefix}{key}": value for key, value in net.state_dict().items()}
        tensors["criterion.weight"] = torch.ones(3)  # of the loss
        if container is None or not prefix:
            del tensors["criterion.weight"]
        torch.save(tensors if container is None else {"epoch": 3, container: tensors}, tmp_path / "w.pth")
        model = rcil.attach(FACTORY, ARGS, weights=tmp_path / "w.pth", classes=NAMES)
        assert (model.logits([IMAGE]) - logits_of(net, IMAGE)).abs().max() < 1e-5

    def test_weights_of_a_wrapped_network(self, net, tmp_path):
        """The builder returns nn.DataParallel, whose names are those of the file."""
        torch.save({f"module.{key}": value for key, value in net.state_dict().items()}, tmp_path / "w.pth")
        model = rcil.attach("odd_outputs:wrapped", ARGS, weights=tmp_path / "w.pth", classes=NAMES)
        assert (model.logits([IMAGE]) - logits_of(net, IMAGE)).abs().max() < 1e-5

    def test_weights_that_are_there_twice(self, net, tmp_path):
        own = net.state_dict()
        both = {f"{prefix}.{key}": value for key, value in own.items() for prefix in ("model", "average.module")}
        torch.save(both, tmp_path / "w.pth")
        with pytest.raises(CheckpointError, match=r"2 times, under 'model\.' and 'average\.module\.'"):
            rcil.attach(FACTORY, ARGS, weights=tmp_path / "w.pth", classes=NAMES)

    def test_weights_of_another_network(self, net, tmp_path):
        state = net.state_dict()
        del state["head.weight"]
        save_file(state, tmp_path / "weights.safetensors")
        with pytest.raises(CheckpointError, match=r"missing head\.weight"):
            rcil.attach(FACTORY, ARGS, weights=tmp_path / "weights.safetensors", classes=NAMES)

    def test_a_damaged_description(self, net, tmp_path):
        path = tmp_path / "model.safetensors"
        attach(net).save(path)
        content = path.read_bytes()
        path.write_bytes(content.replace(b"odd_networks:Plain", b"odd_networks;Plain"))
        with pytest.raises(CheckpointError, match=r"architecture\.factory"):
            read_header(path)


class TestRequests:
    def test_a_module_needs_its_factory(self, net):
        with pytest.raises(ConfigError, match="no factory is named"):
            rcil.attach(net, ARGS, classes=NAMES)

    def test_another_module_than_the_factory_builds(self, net):
        with pytest.raises(ConfigError, match="builds a Summed"):
            rcil.attach(net, ARGS, factory="odd_networks:Summed", classes=NAMES)
        with pytest.raises(ConfigError, match="does not fit its architecture"):
            rcil.attach(net, {"classes": 4}, factory=FACTORY, classes=NAMES)

    def test_a_wrong_mean(self, net):
        with pytest.raises(ConfigError, match="mean"):
            attach(net, mean=(1, 2))


def test_add_class_and_fold_back(net, tmp_path):
    site = make_site(tmp_path / "site", images=4)
    names = ["background", "road", "ball"]
    model = rcil.attach(net, ARGS, factory=FACTORY, classes=names)
    report = rcil.add_class(
        model, data=site, classes=["cone"], output=tmp_path / "new", epochs=1, crop=64, batch=2, workers=0
    )
    new = rcil.load(report.model, allow=["odd_networks"])
    assert [c.name for c in new.classes] == [*names, "cone"]
    plain = new.fold(keep_norms=True)
    assert type(plain.module) is Plain
    Plain(classes=4).load_state_dict(plain.module.state_dict())
    assert (new.logits([IMAGE]) - logits_of(plain.module, IMAGE)).abs().max() < 1e-4
    assert (new.logits([IMAGE]) - new.fold().logits([IMAGE])).abs().max() < 1e-4
    plain.save(tmp_path / "plain.safetensors")
    again = rcil.load(tmp_path / "plain.safetensors", allow=["odd_networks"])
    assert (again.logits([IMAGE]) - new.logits([IMAGE])).abs().max() < 1e-4


@pytest.mark.parametrize("method", ["fine-tuning", "rcil", "plop", "sdr", "strict"])
def test_methods_train_a_task(task_file, method):
    document = yaml.safe_load(task_file.read_text())
    document["network"] = {"factory": FACTORY, "args": {"classes": 2}}
    document["method"] = {"name": method}
    document["training"] |= {"epochs": [1, 1]}
    task_file.write_text(yaml.safe_dump(document))
    with allowing(["odd_networks"]):
        results = run_task(load_task(task_file), task_file.parent / "run")
    assert [step["teaches"] for step in results["steps"]] == [["background", "ball"], ["cone"]]


@pytest.mark.parametrize(
    "factory", ["odd_networks:Picky", "odd_networks:HalfPrecision", "odd_networks:Grid", "odd_code:Patches"]
)
def test_check(factory):
    found = check_network(factory, {"classes": 3}, export=False, say=lambda text: None)
    fp32_only = factory.endswith("Grid")
    assert found.problems == []
    assert found.fold32 < 1e-4
    assert isnan(found.fold64) if fp32_only else found.fold64 < 1e-10
    assert found.row()["fold error fp64 / fp32"].startswith("not run" if fp32_only else f"{found.fold64:.0e}")


def test_check_names_a_training_that_diverges():
    found = check_network("odd_outputs:Exploding", {"classes": 3}, export=False, say=lambda text: None)
    assert [problem.partition(" on noise")[0] for problem in found.problems] == ["two steps of training"]
    assert found.row()["fold error fp64 / fp32"] == "not run / not run"


class TestCommands:
    def run(self, *words):
        return CliRunner().invoke(app, [str(word) for word in words])

    def test_attach_writes_a_checkpoint(self, tmp_path):
        path = tmp_path / "model.safetensors"
        result = self.run("attach", FACTORY, "--args", json.dumps(ARGS), "-o", path)
        assert result.exit_code == 0, result.output
        assert "convs with branches  3" in result.output
        assert [c.name for c in read_header(path).metadata.classes] == ["background", "class_1", "class_2"]

    def test_the_chosen_output_is_shown(self, tmp_path):
        result = self.run("attach", "odd_outputs:MainLast", "-o", tmp_path / "model.safetensors")
        assert "output               1\n" in result.output
        assert "classifier           rows\n" in result.output

    def test_check_takes_a_classifier(self, monkeypatch):
        monkeypatch.setattr(rcil.attaching.check, "_export", lambda *_: None)
        words = ("--check", "odd_outputs:ManyTasks", "--args", '{"classes": 5}', "--classifier", "heads.seg")
        assert "| ManyTasks | 2, 1 with branches |" in self.run("attach", *words, "--maps", "stem").stdout

    def test_check_refuses_what_it_does_not_read(self, tmp_path):
        result = self.run("attach", "--check", FACTORY, "--weights", tmp_path / "w.pth")
        assert "does not read --weights" in result.exception.message

    def test_what_a_network_prints_stays_out_of_the_result(self, monkeypatch):
        monkeypatch.setattr(rcil.attaching.check, "_export", lambda *_: None)
        result = self.run("attach", "--check", "odd_networks:Talking", "--json")
        assert json.loads(result.stdout)["ok"]
        assert "| talking |" in result.stderr

    def test_import_with_a_factory(self, net, tmp_path):
        source, path = tmp_path / "w.pth", tmp_path / "model.safetensors"
        torch.save(net.state_dict(), source)
        result = self.run("import", source, "-o", path, "--factory", FACTORY, "--args", json.dumps(ARGS))
        assert result.exit_code == 0, result.output
        with allowing(["odd_networks"]):
            assert (rcil.load(path).logits([IMAGE]) - logits_of(net, IMAGE)).abs().max() < 1e-5

    def test_a_permission_anywhere_on_the_command_line(self, net, tmp_path):
        path = tmp_path / "model.safetensors"
        attach(net).save(path)
        site = make_site(tmp_path / "site", images=2)
        _ALLOWED.set(frozenset())
        refused = self.run("eval", path, "--data", site)
        assert isinstance(refused.exception, ConfigError)
        assert self.run("eval", path, "--data", site, "--allow-import", "odd_networks").exit_code == 0

    @pytest.mark.parametrize(
        ("words", "said"),
        [(["--args", "{"], "not JSON"), (["--args", "[]"], "not a JSON object"), ([], "either --check or an output")],
    )
    def test_wrong_options(self, words, said, tmp_path):
        output = ["-o", tmp_path / "m.safetensors"] if words else []
        result = self.run("attach", FACTORY, *words, *output)
        assert isinstance(result.exception, ConfigError)
        assert said in result.exception.message
