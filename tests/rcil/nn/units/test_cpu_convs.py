import pytest
import torch
from torch import nn

from rcil.model.architecture import Architecture
from rcil.nn import build
from rcil.nn.architectures.depthwise import DepthwiseConv2d
from rcil.nn.units.cpu_convs import DilatedConv2d, PointwiseConv2d, _parts, is_mostly_padding

LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outcome(conv, images, towards):
    x = images.clone(memory_format=torch.preserve_format).requires_grad_()
    y = conv(x)
    (y * towards).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in conv.parameters())]


def compare(mine, images):
    plain = nn.Conv2d(
        mine.in_channels,
        mine.out_channels,
        mine.kernel_size,
        padding=mine.padding,
        dilation=mine.dilation,
        bias=mine.bias is not None,
    ).double()
    plain.load_state_dict(mine.state_dict())
    towards = torch.randn(len(images), mine.out_channels, *images.shape[2:], dtype=torch.float64)
    for a, b in zip(outcome(mine, images, towards), outcome(plain, images, towards), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("kernel", "dilation", "size"), [(3, 6, (7, 9)), (3, 9, (7, 5)), (5, 2, (6, 3)), (3, 1, (8, 8)), (3, 6, (8, 40))]
)
def test_dilated_convs_compute_what_torch_does(kernel, dilation, size, bias, layout):
    torch.manual_seed(0)
    reach = dilation * (kernel // 2)
    conv = DilatedConv2d(3, 4, kernel, padding=reach, dilation=dilation, bias=bias).double()
    compare(conv, torch.randn(2, 3, *size, dtype=torch.float64).contiguous(memory_format=layout))


def test_large_dilations_are_mostly_padding():
    def share(dilation, size):
        conv = DilatedConv2d(3, 4, 3, padding=dilation, dilation=dilation)
        return is_mostly_padding(torch.empty(1, 3, size, size), conv)

    assert share(18, 16) and share(12, 16) and not share(6, 16) and not share(12, 64)
    strided = nn.Conv2d(3, 4, 3, stride=2, padding=18, dilation=18)
    assert not is_mostly_padding(torch.empty(1, 3, 16, 16), strided)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "shape", [(8, 3, 6, 5), (2, 3, 7, 5), (3, 3, 12, 2), (1, 3, 32, 4), (16, 3, 4, 4), (2, 3, 1, 1)]
)
def test_pointwise_convs_compute_what_torch_does(shape, bias, layout):
    torch.manual_seed(0)
    conv = PointwiseConv2d(3, 4, 1, bias=bias).double()
    compare(conv, torch.randn(shape, dtype=torch.float64).contiguous(memory_format=layout))


@pytest.mark.usefixtures("one_thread")
def test_images_are_cut_into_as_few_parts_as_needed():
    def parts(*shape):
        return _parts(torch.empty(shape).contiguous(memory_format=torch.channels_last))

    assert parts(8, 3, 6, 5) == 2
    assert parts(3, 3, 12, 2) == 6  # 3 x 6 = 18 images
    assert parts(16, 3, 4, 4) == 1  # enough images
    assert parts(2, 3, 7, 5) == 1  # seven rows have no part of equal height that gives enough
    assert _parts(torch.empty(8, 3, 6, 5)) == 1  # planes would have to be copied


@pytest.mark.usefixtures("one_thread")
def test_a_network_learns_what_it_would_with_torch_convs(monkeypatch):
    """Loss and all gradients of EfficientNet-lite0 with RC blocks, whose maps are small enough for every fast path."""
    torch.manual_seed(0)
    model = build(Architecture(backbone="efficientnet_lite0", head_width=16), [["background", "ball"]]).double()
    model = model.to(memory_format=torch.channels_last).train()
    kinds = (DepthwiseConv2d, DilatedConv2d, PointwiseConv2d)
    assert all(any(type(m) is kind for m in model.modules()) for kind in kinds)
    images = torch.randn(2, 3, 128, 128, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 2, (2, 128, 128))
    found = []
    for plain in (False, True):
        if plain:
            for kind in kinds:
                monkeypatch.delattr(kind, "forward")
        torch.manual_seed(1)  # drop-path
        loss = nn.functional.cross_entropy(model(images), labels)
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
