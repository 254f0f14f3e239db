"""Weight files of other programs, from the file on disk to a network that computes what it did."""

import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from networks import at_step, randomise, small_arch
from official_models import TINY, run
from official_recipe import GOLDEN, state_dict
from torch import nn

from rcil.checkpoint.file import load, load_backbone
from rcil.checkpoint.importers import import_file
from rcil.core.errors import CheckpointError
from rcil.model.header import read_header
from rcil.nn import build


@pytest.fixture
def target(tmp_path):
    return tmp_path / "m.safetensors"


@pytest.fixture(scope="module")
def step0_state():
    return state_dict(TINY["keys_step0"])


def wrapped(state):
    """As the official training saves it: inside a data-parallel wrapper, with optimiser state and a numpy score."""
    return {
        "epoch": 29,
        "model_state": {f"module.{key}": value for key, value in state.items()},
        "optimizer_state": {"state": {}, "param_groups": [{"lr": 0.01}]},
        "best_score": np.float64(0.71),
        "trainer_state": {"regularizer": None},
    }


class TestOfficial:
    def test_a_saved_file_gives_the_official_outputs(self, step0_state, tmp_path, target):
        torch.save(wrapped(step0_state), tmp_path / "step0.pth")
        metadata = import_file(tmp_path / "step0.pth", target, names=["background", "a", "b", "c", "d", "unused"])
        assert [c.name for c in metadata.classes] == ["background", "a", "b", "c", "d"]
        model, _ = load(target)
        expected = np.load(GOLDEN / "official_tiny.npz")["step0.logits_small"]
        assert np.abs(run(model).logits_small.numpy() - expected).max() < 1e-4
        assert read_header(target).metadata.method == "rcil-official"

    def test_without_num_batches_tracked_and_wrapper(self, step0_state, tmp_path, target):
        old = {key: value for key, value in step0_state.items() if not key.endswith("tracked")}
        torch.save(old, tmp_path / "old.pth")
        assert import_file(tmp_path / "old.pth", target).architecture.blocks == (1, 2, 1, 2)

    def test_single_branch(self, step0_state, tmp_path, target):
        state = {key: value for key, value in step0_state.items() if "_new" not in key}
        torch.save(wrapped(state), tmp_path / "plop.pth")
        metadata = import_file(tmp_path / "plop.pth", target)
        assert metadata.architecture.rc is None
        assert metadata.architecture.stem_activation
        assert load(target)[0].names == ("background", "class_1", "class_2", "class_3", "class_4")

    def test_too_few_names(self, step0_state, tmp_path, target):
        torch.save(step0_state, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match="5 classes but only 2 names"):
            import_file(tmp_path / "a.pth", target, names=["background", "a"])
        assert not target.exists()

    @pytest.mark.parametrize(
        ("drop", "message"),
        [
            ("cls.0.weight", "cls.0.weight"),
            ("head.red_conv.weight", "head.red_conv"),
            ("body.mod3.block1.convs.bn1.running_var", "missing"),
        ],
    )
    def test_an_incomplete_file(self, step0_state, tmp_path, target, drop, message):
        torch.save({k: v for k, v in step0_state.items() if k != drop}, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=message):
            import_file(tmp_path / "a.pth", target)

    def test_a_tensor_of_the_wrong_shape(self, step0_state, tmp_path, target):
        torch.save(step0_state | {"head.red_bn.weight": torch.ones(7)}, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=r"misshapen head\.project\.norm\.weight"):
            import_file(tmp_path / "a.pth", target)

    def test_an_unknown_layer(self, step0_state, tmp_path, target):
        torch.save(step0_state | {"body.extra.weight": torch.ones(7)}, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=r"unexpected body\.extra\.weight \(1 in all\)\nGive the file"):
            import_file(tmp_path / "a.pth", target)


class Attack:
    def __reduce__(self):
        return (print, ("code from the file was run",))


class TestBadFiles:
    def test_code_is_refused_and_not_run(self, tmp_path, target, capsys):
        torch.save({"model_state": {"w": torch.zeros(1)}, "x": Attack()}, tmp_path / "evil.pth")
        with pytest.raises(CheckpointError, match=r"evil\.pth was refused"):
            import_file(tmp_path / "evil.pth", target)
        (tmp_path / "old.pth").write_bytes(pickle.dumps(Attack()))
        with pytest.raises(CheckpointError):
            import_file(tmp_path / "old.pth", target)
        assert "was run" not in capsys.readouterr().out

    @pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut off"])
    def test_not_a_torch_file(self, tmp_path, target, content):
        (tmp_path / "a.pth").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"a\.pth"):
            import_file(tmp_path / "a.pth", target)

    def test_a_truncated_file(self, tmp_path, target):
        torch.save({"w": torch.zeros(10_000)}, tmp_path / "a.pth")
        data = (tmp_path / "a.pth").read_bytes()
        (tmp_path / "a.pth").write_bytes(data[: len(data) // 2])
        with pytest.raises(CheckpointError, match="cannot read"):
            import_file(tmp_path / "a.pth", target)

    def test_missing(self, tmp_path, target):
        with pytest.raises(CheckpointError, match="does not exist"):
            import_file(tmp_path / "none.pth", target)

    @pytest.mark.parametrize("content", [{"lr": 0.1}, [1, 2], {}])
    def test_no_tensors(self, tmp_path, target, content):
        torch.save(content, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match="no named tensors"):
            import_file(tmp_path / "a.pth", target)

    def test_a_file_of_the_old_format_that_is_cut_off(self, tmp_path, target):
        torch.save({"w": torch.zeros(9)}, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
        data = (tmp_path / "a.pth").read_bytes()
        for end in range(0, len(data) - 1, 3):
            (tmp_path / "a.pth").write_bytes(data[:end])
            with pytest.raises(CheckpointError, match=r"a\.pth"):
                import_file(tmp_path / "a.pth", target)

    def test_names_that_are_no_texts(self, tmp_path, target):
        torch.save({1: torch.zeros(1), "encoder.weight": torch.zeros(1)}, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=r"none of the known networks \(its keys start with: encoder\.weight"):
            import_file(tmp_path / "a.pth", target)

    def test_a_tensor_that_stands_for_more_than_memory(self, tmp_path, target):
        torch.save({"w": torch.zeros(1, dtype=torch.float16).expand(2**40)}, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=r"a\.pth: the tensor w claims more numbers than it stores"):
            import_file(tmp_path / "a.pth", target)

    @pytest.mark.parametrize(
        "state",
        [
            {"_conv_stem.weight": torch.zeros(2), "surprise": torch.zeros(2)},
            {"_conv_stem.weight": torch.zeros(2), "_blocks.99._bn0.weight": torch.zeros(2)},
            {"mod1.conv1.weight": torch.zeros(2), "surprise": torch.zeros(2)},
            {"body.mod1.conv1.weight": torch.zeros(()), "cls.0.weight": torch.zeros(())},
        ],
    )
    def test_what_only_looks_like_a_known_network(self, tmp_path, target, state):
        torch.save(state, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=r"a\.pth"):
            import_file(tmp_path / "a.pth", target)
        assert not target.exists()

    def test_an_unknown_network(self, tmp_path, target):
        torch.save({"encoder.weight": torch.zeros(1)}, tmp_path / "a.pth")
        with pytest.raises(CheckpointError, match=r"(?s)encoder\.weight.*Known: official"):
            import_file(tmp_path / "a.pth", target)


class TorchvisionBlock(nn.Module):
    """A residual block with torchvision's names, to check the import against an independent forward pass."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        if bottleneck:
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        else:
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.bottleneck = bottleneck
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = self.downsample(x) if hasattr(self, "downsample") else x
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.bottleneck:
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + shortcut)


class TorchvisionResNet(nn.Module):
    def __init__(self, blocks, bottleneck, base):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, base, 7, 2, 3, bias=False), nn.BatchNorm2d(base)
        inputs = base
        for stage, count in enumerate(blocks):
            layer, width = nn.Sequential(), base * 2**stage
            for position in range(count):
                stride = 2 if stage > 0 and position == 0 else 1
                layer.append(TorchvisionBlock(inputs, width, stride, bottleneck))
                inputs = width * 4 if bottleneck else width
            setattr(self, f"layer{stage + 1}", layer)
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        maps = []
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
            maps.append(x)
        return maps


@pytest.mark.parametrize(
    ("backbone", "blocks", "bottleneck"),
    [("resnet18", (2, 2, 2, 2), False), ("resnet34", (3, 4, 6, 3), False), ("resnet50", (3, 4, 6, 3), True)],
)
def test_torchvision_resnets(tmp_path, target, backbone, blocks, bottleneck):
    torch.manual_seed(0)
    reference = TorchvisionResNet(blocks, bottleneck, 8).eval()
    randomise(reference)
    torch.save(reference.state_dict(), tmp_path / "resnet.pth")
    metadata = import_file(tmp_path / "resnet.pth", target)
    assert metadata.architecture.backbone == backbone
    assert metadata.architecture.slope == 0
    model = build(small_arch(backbone, slope=0.0, blocks=None), [["background"]]).eval()
    load_backbone(model, target)
    x = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        ours, theirs = model.backbone(x).after, reference(x)
    for a, b in zip(ours[:3], theirs[:3], strict=True):  # stage 4 is dilated here
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_imagenet_abn_backbone(tmp_path, target):
    """The tiny official body, saved as the ImageNet file is: `module.` prefix, `state_dict` entry, fc on top."""
    body = {k.removeprefix("body."): v for k, v in state_dict(TINY["keys_step0"]).items() if k.startswith("body.")}
    body = {k: v for k, v in body.items() if "_new" not in k and not k.endswith("tracked")}
    body |= {"classifier.fc.weight": torch.zeros(1000, 2048), "classifier.fc.bias": torch.zeros(1000)}
    torch.save({"state_dict": {f"module.{k}": v for k, v in body.items()}}, tmp_path / "r.pth.tar")
    metadata = import_file(tmp_path / "r.pth.tar", target)
    assert (metadata.kind, metadata.architecture.norm) == ("backbone", "abs")
    model = build(metadata.architecture.replace(rc={}, stem_activation=False), [["background"]]).eval()
    load_backbone(model, target)
    block = model.backbone.stages[1][0].conv2
    assert torch.equal(block.old.conv.weight, body["mod3.block1.convs.conv2.weight"])
    assert torch.equal(block.new.conv.weight, block.old.conv.weight)
    assert torch.equal(block.new.norm.running_var, body["mod3.block1.convs.bn2.running_var"])


def test_a_resnet_without_a_stage(tmp_path, target):
    torch.save({"layer1.0.conv1.weight": torch.zeros(4, 4, 3, 3)}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="1 of the four stages"):
        import_file(tmp_path / "a.pth", target)


def test_importing_a_checkpoint_of_our_own_is_not_possible(tmp_path, target):
    from rcil.checkpoint.file import save
    from rcil.model.metadata import Metadata, class_table

    model = at_step(small_arch(), 0)
    metadata = Metadata(architecture=model.arch, classes=class_table([list(model.names)]))
    save(tmp_path / "own.safetensors", model, metadata)
    with pytest.raises(CheckpointError, match="none of the known networks"):
        import_file(tmp_path / "own.safetensors", target)
