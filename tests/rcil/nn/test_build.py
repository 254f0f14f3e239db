import pytest
import torch
from networks import small_arch
from pydantic import ValidationError

from rcil.model.architecture import Architecture
from rcil.nn import build


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
