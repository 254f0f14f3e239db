import json
import struct

import pytest
import torch
from networks import NORMS, at_step, needs_abn, small_arch
from safetensors.torch import load_file, save_file

from rcil.checkpoint.file import load, load_backbone, load_into, save, save_backbone
from rcil.core.errors import CheckpointError
from rcil.model.header import METADATA_KEY, read_header
from rcil.model.metadata import ClassInfo, LineageEntry, Metadata, class_table
from rcil.nn import begin_step, build, cost, fold

NAMES = [["background", "a", "b"]]


def describe(model, **fields):
    steps = [list(names) for names in model.classifier.steps]
    return Metadata(architecture=model.arch, classes=class_table(steps), step=len(steps) - 1, **fields)


def stored(path, step=1, **changes):
    model = at_step(small_arch(**changes), step)
    save(path, model, describe(model, method="rcil"))
    return model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.safetensors"


def same_output(a, b):
    x = torch.randn(1, 3, 33, 49)
    with torch.no_grad():
        return torch.equal(a.eval()(x), b.eval()(x))


class TestRoundTrip:
    @pytest.mark.parametrize("norm", NORMS)
    @pytest.mark.parametrize("step", [0, 1, 2])
    def test_every_form(self, path, norm, step):
        model = stored(path, step, norm=norm)
        again, metadata = load(path)
        assert same_output(model, again)
        assert again.arch == model.arch
        assert again.classifier.steps == model.classifier.steps
        assert metadata.step == step
        assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]

    @pytest.mark.parametrize("backbone", ["resnet50", "efficientnet_lite0"])
    def test_folded(self, path, backbone):
        model, _ = fold(at_step(small_arch(backbone), 2))
        save(path, model, describe(model))
        again, metadata = load(path)
        assert metadata.architecture.folded
        assert same_output(model, again)

    @pytest.mark.parametrize("backbone", ["resnet18", "efficientnet_lite0"])
    def test_half(self, path, backbone):
        """Half the size, a float32 network, weights within the rounding of fp16, nearly the same masks."""
        model = at_step(small_arch(backbone), 1).eval()
        save(path, model, describe(model))
        full = path.stat().st_size
        save(path, model, describe(model), half=True)
        assert path.stat().st_size < 0.6 * full
        again, _ = load(path)
        for (name, stored_as), value in zip(again.state_dict().items(), model.state_dict().values(), strict=True):
            assert stored_as.dtype == value.dtype, name
            tolerance = {"rtol": 2**-11, "atol": 2**-25} if value.ndim > 1 else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(stored_as, value, **tolerance)
        x = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            same = (again(x).argmax(1) == model(x).argmax(1)).float().mean()
        assert same > 0.98

    def test_function_preserving_start(self, path):
        model = begin_step(at_step(small_arch(), 0), ["c"], preserve=True)
        save(path, model, describe(model))
        assert same_output(model, load(path)[0])

    @pytest.mark.parametrize("rc", [{"norm_after": True}, {"stages": ("stage4", "head")}], ids=str)
    @pytest.mark.parametrize("how", [{}, {"preserve": True}, {"absorb": True}], ids=str)
    def test_other_forms_of_branches(self, path, rc, how):
        model = begin_step(at_step(small_arch(rc=rc, blocks=(1, 1, 1, 1)), 0), ["c"], **how)
        save(path, model, describe(model))
        again, metadata = load(path)
        assert same_output(model, again)
        assert again.arch == model.arch == metadata.architecture
        assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]
        following = begin_step(again, ["d"], **how)
        assert same_output(following, begin_step(model, ["d"], **how))

    def test_learned_eta(self, path):
        model = at_step(small_arch(rc={"mix": "learnable"}), 0)
        torch.nn.init.normal_(model.head.paths[0].mix.logit)
        save(path, model, describe(model))
        assert same_output(model, load(path)[0])

    def test_the_next_step_continues_from_the_file(self, path):
        model = stored(path, 1)
        assert same_output(begin_step(model, ["z"]), begin_step(load(path)[0], ["z"]))

    @needs_abn
    def test_inplace_and_abs_are_interchangeable(self, path):
        model = stored(path, 0, norm="inplace")
        again, _ = load(path, norm="abs")
        x = torch.randn(1, 3, 33, 33)
        with torch.no_grad():
            torch.testing.assert_close(again(x), model(x), rtol=1e-4, atol=1e-4)
        with pytest.raises(CheckpointError, match="same arithmetic"):
            load(path, norm="batch")

    def test_metadata(self, path):
        entry = LineageEntry(step=0, source="train", seed=3, metrics={"miou": 0.5}, config={"lr": 0.02})
        model = at_step(small_arch(), 0)
        save(path, model, describe(model, lineage=(entry,), method="mib", colour_order="BGR"))
        header = read_header(path)
        assert header.metadata.lineage == (entry,)
        assert header.metadata.method == "mib"
        assert header.metadata.colour_order == "BGR"
        assert header.parameters == cost(model).parameters
        assert header.metadata.cost.macs == cost(model).macs
        assert header.metadata.cost.folded_parameters == cost(fold(model)[0]).parameters
        assert header.metadata.cost.folded_macs == cost(fold(model)[0]).macs


class TestClassNames:
    def test_rows_follow_their_names(self, path):
        model = at_step(small_arch(), 0)
        save(path, model, describe(model))
        shuffled = build(model.arch, [["b", "background", "a"]])
        load_into(shuffled, path)
        x = torch.randn(1, 3, 33, 33)
        with torch.no_grad():
            expected = model(x)[:, [2, 0, 1]]
            torch.testing.assert_close(shuffled.eval()(x), expected)

    def test_missing_and_extra_names(self, path):
        stored(path, 0)
        model = build(small_arch(), [["background", "a", "tree"]])
        with pytest.raises(CheckpointError, match=r"lacks \['tree'\]; it also has \['b'\]"):
            load_into(model, path)

    def test_a_class_table_that_does_not_fit_is_not_written(self, path):
        model = at_step(small_arch(), 0)
        metadata = Metadata(architecture=model.arch, classes=class_table([["background", "b", "a"]]))
        with pytest.raises(CheckpointError, match="rows are"):
            save(path, model, metadata)
        assert not path.exists()

    def test_duplicate_names_in_a_file(self, path):
        stored(path, 0)
        rewrite(path, lambda meta: meta["classes"][2].update(name="a"))
        with pytest.raises(CheckpointError, match="duplicate class names: a"):
            load(path)


def rewrite(path, change):
    """Change the metadata of a file and leave its tensors."""
    header = json.loads(path.read_bytes()[8 : 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]])
    document = json.loads(header["__metadata__"][METADATA_KEY])
    change(document)
    save_file(load_file(path), path, metadata={METADATA_KEY: json.dumps(document)})


class TestBadFiles:
    def test_missing_file(self, path):
        with pytest.raises(CheckpointError, match=r"m\.safetensors: No such file"):
            load(path)

    @pytest.mark.parametrize("keep", [0, 5, 8, 100, 0.5, 0.999])
    def test_truncated(self, path, keep):
        stored(path, 0)
        data = path.read_bytes()
        path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
        with pytest.raises(CheckpointError, match=r"truncated|not a safetensors"):
            load(path)

    def test_trailing_bytes(self, path):
        stored(path, 0)
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(CheckpointError, match="truncated"):
            read_header(path)

    def test_another_programs_safetensors(self, path):
        save_file({"w": torch.zeros(3)}, path)
        with pytest.raises(CheckpointError, match="rcil import"):
            load(path)

    def test_newer_format(self, path):
        stored(path, 0)
        rewrite(path, lambda meta: meta.update(format_version=99))
        with pytest.raises(CheckpointError, match=r"(?s)version 99.*Update rcil"):
            load(path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda meta: meta["architecture"].update(backbone="vgg"), r"architecture\.backbone"),
            (lambda meta: meta.update(surprise=1), "surprise"),
            (lambda meta: meta["classes"][0].update(colour=[0, 0, 300]), "colour"),
            (lambda meta: meta.pop("format_version"), "expected JSON"),
        ],
    )
    def test_damaged_metadata(self, path, change, message):
        stored(path, 0)
        rewrite(path, change)
        with pytest.raises(CheckpointError, match=rf"(?s)damaged.*{message}"):
            load(path)

    def test_wrong_architecture(self, path):
        stored(path, 0)
        with pytest.raises(CheckpointError, match="backbone: 'resnet18' in the file, 'resnet34' in the model"):
            load_into(build(small_arch("resnet34"), NAMES), path)

    def test_a_norm_of_other_arithmetic(self, path):
        stored(path, 0, norm="abs")
        with pytest.raises(CheckpointError, match="norm: 'abs' in the file, 'batch' in the model"):
            load_into(build(small_arch(), NAMES), path)

    def test_a_missing_and_a_misshapen_tensor(self, path):
        stored(path, 0)
        text = read_header(path).metadata.model_dump_json()
        tensors = load_file(path)
        del tensors["backbone.stem.conv.weight"]
        tensors["head.pool.conv.weight"] = torch.zeros(1)
        save_file(tensors, path, metadata={METADATA_KEY: text})
        with pytest.raises(CheckpointError, match=r"missing backbone\.stem.*misshapen head\.pool"):
            load(path)

    @pytest.mark.parametrize("change", [{"width": 8192}, {"blocks": [1, 1, 1, 1000]}, {"head_width": 17}])
    def test_no_memory_is_taken_for_a_network_that_is_not_there(self, path, change, monkeypatch):
        stored(path, 0)
        rewrite(path, lambda meta: meta["architecture"].update(change))
        monkeypatch.setattr("rcil.checkpoint.file.build_any", lambda *_: pytest.fail("built"))
        with pytest.raises(CheckpointError, match=r"does not fit its architecture|too few for the network"):
            load(path)

    @pytest.mark.parametrize("change", [lambda rows: rows[:2], lambda rows: rows[:, None].expand(-1, 2, -1, -1, -1)])
    def test_a_missing_or_misshapen_classifier_row(self, path, change):
        stored(path, 0)
        text = read_header(path).metadata.model_dump_json()
        tensors = load_file(path)
        tensors["classifier.weight"] = change(tensors["classifier.weight"]).clone()
        save_file(tensors, path, metadata={METADATA_KEY: text})
        with pytest.raises(CheckpointError, match="no classifier row"):
            load(path)


class TestBackbone:
    def write(self, path, **changes):
        plain = at_step(small_arch("resnet50", rc=None, **changes), 0)
        metadata = Metadata(kind="backbone", architecture=plain.arch)
        save_backbone(path, plain.backbone.state_dict(), metadata)
        return plain

    @pytest.mark.parametrize("rc", [{}, {"norm_after": True}, {"stages": ("stage2", "stage4")}], ids=str)
    def test_both_branches_start_from_it(self, path, rc):
        plain, model = self.write(path), build(small_arch("resnet50", rc=rc), NAMES)
        load_backbone(model, path)
        x = torch.randn(1, 3, 65, 65)
        with torch.no_grad():
            expected, got = plain.backbone(x), model.eval().backbone(x)
        for a, b in zip(expected.before, got.before, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(("stored_norm", "norm"), [("abs", "batch"), ("batch", "abs")])
    def test_norms_are_converted_exactly(self, path, stored_norm, norm):
        plain, model = self.write(path, norm=stored_norm), build(small_arch("resnet50", norm=norm), NAMES)
        with torch.no_grad():  # scales below eps do not exist in inplace-ABN
            for key, value in plain.backbone.state_dict().items():
                if key.endswith("norm.weight"):
                    value[value.abs() < 1e-3] = -0.1
        save_backbone(path, plain.backbone.state_dict(), Metadata(kind="backbone", architecture=plain.arch))
        load_backbone(model, path)
        x = torch.randn(1, 3, 65, 65, dtype=torch.float64)
        with torch.no_grad():
            expected, got = plain.double().backbone(x), model.eval().double().backbone(x)
        for a, b in zip(expected.before, got.before, strict=True):
            assert (a - b).abs().max() < 1e-4 * a.abs().max()

    def test_it_is_not_a_segmenter(self, path):
        self.write(path)
        with pytest.raises(CheckpointError, match="pretrained backbone"):
            load(path)

    def test_another_backbone(self, path):
        self.write(path)
        with pytest.raises(CheckpointError, match=r"\(backbone: 'resnet50' in the file, 'resnet101' in the model\)"):
            load_backbone(build(small_arch("resnet101"), NAMES), path)
        other = build(small_arch("resnet50").replace(width=16, blocks=(1, 1, 1, 1)), NAMES)
        with pytest.raises(CheckpointError, match=r"\(blocks: None in the file, \(1, 1, 1, 1\) .* width: 8 .* 16 in"):
            load_backbone(other, path)

    @pytest.mark.parametrize(("stored_norm", "norm"), [("abs", "batch"), ("batch", "abs"), ("batch", "batch")])
    def test_a_whole_segmenter_has_a_backbone_too(self, path, stored_norm, norm):
        plain = at_step(small_arch("resnet50", rc=None, norm=stored_norm), 0)
        save(path, plain, describe(plain))
        whole, alone = (build(small_arch("resnet50", norm=norm), NAMES) for _ in range(2))
        load_backbone(whole, path)
        self.write(path, norm=stored_norm)
        load_backbone(alone, path)
        for key, value in whole.backbone.state_dict().items():
            assert torch.equal(value, alone.backbone.state_dict()[key]), key

    def test_only_step_0_starts_from_it(self, path):
        self.write(path)
        with pytest.raises(CheckpointError, match="step 0"):
            load_backbone(at_step(small_arch("resnet50"), 1), path)


def test_an_interrupted_save_leaves_the_old_file(path, monkeypatch):
    first = stored(path, 0)

    def cut_off(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("rcil.checkpoint.file.save_file", cut_off)
    with pytest.raises(KeyboardInterrupt):
        stored(path, 1)
    assert same_output(load(path)[0], first)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("fields", [{"id": 65536}, {"id": -1}])
def test_ids_that_no_mask_can_hold(fields):
    with pytest.raises(ValueError, match="id"):
        ClassInfo(**{"name": "a", "id": 0, "colour": (0, 0, 0), "step": 0, **fields})
