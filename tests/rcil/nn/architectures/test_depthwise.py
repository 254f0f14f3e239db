import pytest
import torch
from torch import nn

from rcil.nn.architectures.depthwise import DepthwiseConv2d

SHAPES = [
    (3, 2, (7, 5)),
    (5, 2, (6, 6)),
    (5, 4, (9, 3)),
    (3, 1, (4, 4)),
    (5, 1, (6, 7)),
    (7, 1, (8, 5)),
    (7, 3, (2, 9)),
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kernel", "dilation", "size"), SHAPES)
def test_outputs_and_gradients_are_those_of_a_conv(kernel, dilation, size, bias, layout):
    torch.manual_seed(0)
    mine = DepthwiseConv2d(6, kernel, dilation, bias=bias).double()
    plain = nn.Conv2d(6, 6, kernel, 1, dilation * (kernel // 2), dilation, groups=6, bias=bias).double()
    plain.load_state_dict(mine.state_dict())
    images = torch.randn(2, 6, *size, dtype=torch.float64).contiguous(memory_format=layout)
    towards = torch.randn(2, 6, *size, dtype=torch.float64)
    found = []
    for conv in (mine, plain):
        x = images.clone().requires_grad_()
        y = conv(x)
        (y * towards).sum().backward()
        found.append([y.detach(), x.grad, *(p.grad for p in conv.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_images_need_no_gradient():
    conv = DepthwiseConv2d(4, 3, 2)
    conv(torch.randn(1, 4, 5, 5)).sum().backward()
    assert conv.weight.grad is not None and conv.weight.grad.abs().sum() > 0


def test_a_frozen_conv_passes_gradients_on():
    conv = DepthwiseConv2d(4, 3, 2).double().requires_grad_(False)
    plain = nn.Conv2d(4, 4, 3, 1, 2, 2, groups=4).double()
    plain.load_state_dict(conv.state_dict())
    x, towards = torch.randn(2, 1, 4, 5, 5, dtype=torch.float64)
    x.requires_grad_()
    (found,) = torch.autograd.grad((conv(x) * towards).sum(), x)
    (expected,) = torch.autograd.grad((plain(x) * towards).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert conv.weight.grad is None
