import math

import pytest
import torch
from networks import NORMS, randomise
from torch import nn

from rcil.nn.units.convnorm import ConvNorm, ConvSum, SameConv2d
from rcil.nn.units.layers import Layers


def test_same_conv_pads_right_and_below():
    conv = SameConv2d(1, 1, 3, stride=2, bias=False)
    nn.init.ones_(conv.weight)
    x = torch.arange(16.0).view(1, 1, 4, 4)
    # Even size: windows start at 0 and 2, one column of zeros on the right and one row below.
    assert conv(x).flatten().tolist() == [45.0, 39.0, 66.0, 50.0]


@pytest.mark.parametrize("size", [(4, 4), (5, 8), (7, 7), (1, 2)])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 2, 1), (5, 2, 1), (3, 2, 2), (3, 3, 1)])
def test_same_conv_output_size(size, kernel, stride, dilation):
    out = SameConv2d(2, 4, kernel, stride, dilation=dilation)(torch.randn(1, 2, *size))
    assert tuple(out.shape[2:]) == tuple(math.ceil(s / stride) for s in size)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("act", [None, "leaky", "relu6"])
@pytest.mark.parametrize("bias", [False, True])
def test_conv_norm_folds_exactly(norm, act, bias):
    torch.manual_seed(0)
    unit = Layers(norm, 0.01, None).plain(nn.Conv2d(4, 12, 3, padding=1, bias=bias), act).double().eval()
    randomise(unit.norm)
    x = torch.randn(2, 4, 9, 8, dtype=torch.float64)
    folded = unit.fold()
    torch.testing.assert_close(folded(x), unit(x), rtol=1e-12, atol=1e-12)
    assert isinstance(folded, nn.Conv2d if act is None else nn.Sequential)


def test_conv_norm_keeps_the_class_of_its_conv():
    unit = ConvNorm(SameConv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8)).eval()
    randomise(unit.norm)
    folded, x = unit.fold(), torch.randn(1, 3, 8, 9)
    assert isinstance(folded, SameConv2d)
    torch.testing.assert_close(folded(x), unit(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("pooled", [(1, 1), (6, 7)])
def test_conv_sum_folds_exactly_and_only_once(bias, pooled):
    torch.manual_seed(0)
    unit = ConvSum(nn.Conv2d(6, 5, 1, bias=bias), nn.Conv2d(3, 5, 1, bias=bias), nn.BatchNorm2d(5)).double().eval()
    randomise(unit.norm)
    a, b = torch.randn(2, 6, 6, 7, dtype=torch.float64), torch.randn(2, 3, *pooled, dtype=torch.float64)
    folded = unit.fold()
    torch.testing.assert_close(folded(a, b), unit(a, b), rtol=1e-12, atol=1e-12)
    assert folded.norm is None
    assert folded.right.bias is None
    torch.testing.assert_close(folded.fold()(a, b), folded(a, b), rtol=0, atol=0)
