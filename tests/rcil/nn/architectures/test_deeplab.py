import pytest
import torch
from networks import at_step, small_arch

from rcil.nn import fold
from rcil.nn.architectures.deeplab import DeepLabHead, DeepLabPlusHead, enlarge, pool
from rcil.nn.units.rc import RCConv


def test_global_pool():
    x = torch.arange(12.0).view(1, 1, 3, 4)
    assert pool(x, None).item() == 5.5
    assert pool(x, 4).item() == 5.5, "a map inside one window has one mean"


def test_sliding_window_by_hand():
    x = torch.arange(5.0).view(1, 1, 1, 5)
    # Windows of 2: 0.5 1.5 2.5 3.5; the missing pixel is replicated after them (floor((2-1)/2) = 0 before).
    assert pool(x, 2).flatten().tolist() == [0.5, 1.5, 2.5, 3.5, 3.5]
    # Windows of 3: 1 2 3; one pixel before, one after.
    assert pool(x, 3).flatten().tolist() == [1.0, 1.0, 2.0, 3.0, 3.0]


def test_window_is_cut_to_each_side_of_the_map():
    x = torch.randn(1, 2, 3, 9)
    out = pool(x, 4)
    assert out.shape == x.shape
    assert torch.equal(out[:, :, 0], out[:, :, 2]), "the window covers the whole height"


def test_training_pools_globally_whatever_the_window():
    torch.manual_seed(0)
    head = DeepLabHead(small_arch(pool_window=2), [8])
    head.train()
    for module in head.modules():
        module.training = module is head  # norms and draws stay fixed, the head itself trains
    x = torch.randn(2, 8, 6, 6)
    windowed = head([x])
    head.pool_window = None
    assert torch.equal(windowed, head([x]))
    head.eval()
    head.pool_window = 2
    assert not torch.equal(windowed, head([x]))


def test_rates_follow_the_output_stride():
    for stride, rates in ((16, (6, 12, 18)), (8, (12, 24, 32))):
        paths = DeepLabHead(small_arch(output_stride=stride), [8]).paths
        assert tuple(path.new.conv.dilation[0] for path in paths) == (1, *rates)


def test_the_context_is_enlarged_with_half_pixel_centres():
    small = torch.tensor([0.0, 4.0]).view(1, 1, 1, 2)
    assert enlarge(small, torch.zeros(1, 7, 1, 4)).flatten().tolist() == [0.0, 1.0, 3.0, 4.0]


def test_v3plus_refines_at_the_size_of_the_first_stage_with_rc_in_its_3x3_convs():
    head = DeepLabPlusHead(small_arch(head="deeplabv3plus", skip_width=5), [8, 16, 32, 64]).eval()
    maps = [torch.randn(1, channels, side, side) for channels, side in ((8, 33), (16, 17), (32, 9), (64, 9))]
    assert head(maps).shape == (1, 16, 33, 33)
    blocks = [name for name, module in head.named_modules() if isinstance(module, RCConv) and "aspp" not in name]
    assert blocks == ["depthwise1", "depthwise2"]
    assert head.depthwise1.new.conv.groups == 16 + 5


def test_v3plus_joins_context_and_skip_by_hand():
    """With identity kernels the decoder map is the sum of context and skip channels that the last conv picks."""
    head = DeepLabPlusHead(small_arch(head="deeplabv3plus", rc=None, skip_width=8), [8, 16, 32, 64]).eval()
    with torch.no_grad():
        for unit in (head.depthwise1, head.depthwise2):
            unit.conv.weight.zero_()
            unit.conv.weight[:, 0, 1, 1] = 1
        head.skip.conv.weight.copy_(torch.eye(8).view(8, 8, 1, 1))
        head.pointwise1.conv.weight.zero_()
        head.pointwise1.conv.weight[3, 16 + 2] = 1  # channel 3 takes channel 2 of the skip
        head.pointwise2.conv.weight.copy_(torch.eye(16).view(16, 16, 1, 1))
        maps = [torch.rand(1, channels, side, side) for channels, side in ((8, 8), (16, 4), (32, 2), (64, 2))]
        out = head(maps)
    expected = maps[0][:, 2] / (1 + 1e-5) ** 2.5  # five norms with variance 1 and eps 1e-5
    assert torch.allclose(out[:, 3], expected, rtol=1e-5)


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "efficientnet_lite0", "efficientnet_lite2"])
@pytest.mark.parametrize("step", [0, 2])
def test_v3plus_folds_exactly(backbone, step):
    model = at_step(small_arch(backbone, head="deeplabv3plus", pool_window=3), step).double()
    x = torch.randn(2, 3, 65, 97, dtype=torch.float64)
    folded, report = fold(model)
    with torch.no_grad():
        expected = model(x)
        assert (folded(x) - expected).abs().max() <= 1e-10 * expected.abs().max()
    assert not [name for name, module in folded.named_modules() if isinstance(module, RCConv)]
    assert report.count("rc") == len([m for m in model.modules() if isinstance(m, RCConv)])


def test_v3plus_distils_maps_at_stride_4():
    maps = at_step(small_arch(head="deeplabv3plus"), 0)(torch.randn(1, 3, 64, 96), maps="before")
    assert maps.decoder.shape[-2:] == maps.logits_small.shape[-2:] == (16, 24)
    assert maps.encoder.shape[-2:] == (4, 6)
