import pytest
import torch
from networks import small_arch
from pydantic import ValidationError

from rcil.model.architecture import STAGES, Architecture
from rcil.nn import RCConv, build
from rcil.nn.build import build_form


def test_the_random_start_keeps_activations_in_range():
    torch.manual_seed(0)
    for backbone in ("resnet50", "efficientnet_lite0"):
        model = build(small_arch(backbone), [["background", "a"]]).train()
        with torch.no_grad():
            maps = model(torch.randn(2, 3, 65, 65), maps="before")
        assert all(0.05 < m.std() < 50 for m in maps.distilled())


def test_the_two_branches_start_apart():
    model = build(small_arch(), [["background"]])
    block = model.head.paths[0]
    assert not torch.equal(block.old.conv.weight, block.new.conv.weight)


@pytest.mark.parametrize(
    ("backbone", "head", "blocks"),
    [
        ("resnet18", "deeplabv3", (2, 2, 2, 4, 4)),
        ("resnet50", "deeplabv3plus", (3, 4, 6, 3, 6)),
        ("efficientnet_lite0", "deeplabv3", (3, 2, 6, 5, 4)),
    ],
)
def test_blocks_of_each_stage(backbone, head, blocks):
    """The rows of EfficientNet-lite0 have 1 + 2, 2, 3 + 3 and 4 + 1 blocks; the head of v3+ has two more than v3's."""
    where = ("backbone.stages.0.", "backbone.stages.1.", "backbone.stages.2.", "backbone.stages.3.", "head.")
    for stage, prefix, count in zip(STAGES, where, blocks, strict=True):
        model = build_form(small_arch(backbone, head=head, rc={"stages": (stage,)}), [["background"]])
        found = [name for name, part in model.named_modules() if isinstance(part, RCConv)]
        assert len(found) == count and all(name.startswith(prefix) for name in found)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "efficientnet_lite0", "width": 8}, "one size"),
        ({"norm": "inplace", "slope": 0}, "norm 'abs'"),
        ({"folded": True}, "rc must be null"),
        ({"backbone": "resnet19"}, "resnet18"),
        ({"output_stride": 4}, "8, 16 or 32"),
        ({"widht": 64}, "widht"),
    ],
)
def test_impossible_architectures(fields, message):
    with pytest.raises(ValidationError, match=message):
        Architecture.model_validate(fields)
