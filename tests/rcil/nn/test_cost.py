import torch
from networks import small_arch
from torch import nn

from rcil.nn import build, cost


def test_by_hand():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),  # 8 x 8 outputs
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )
    result = cost(model, (16, 16))
    assert result.macs == 64 * 8 * 27 + 64 * 8 * 9 + 10 * 512
    assert result.parameters == 8 * 27 + 8 + 16 + 72 + 5120 + 10


def test_the_model_is_not_touched():
    model = build(small_arch(), [["background"]]).train()
    cost(model)
    assert model.training
    assert all(p.device.type == "cpu" for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())


def test_resnet50_at_224_matches_the_published_figure():
    """4,089,184,256 for the ImageNet classifier at output stride 32; up to stage 3 the networks are the same."""
    with torch.device("meta"):
        model = build(small_arch("resnet50", rc=None).replace(width=64), [["background"]])
    model.backbone.stages = model.backbone.stages[:3]
    first = 1024 * 512 * 196 + 512 * 512 * 9 * 49 + 512 * 2048 * 49 + 1024 * 2048 * 49
    others = 2 * (2048 * 512 * 49 + 512 * 512 * 9 * 49 + 512 * 2048 * 49)
    fc = 2048 * 1000
    assert cost(_Backbone(model.backbone), (224, 224)).macs + first + others + fc == 4_089_184_256


class _Backbone(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, x):
        return self.backbone(x)[0]
