import torch
from networks import small_arch

from rcil.nn.architectures.deeplab import DeepLabHead, pool


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
    head = DeepLabHead(small_arch(pool_window=2), 8)
    head.train()
    for module in head.modules():
        module.training = module is head  # norms and draws stay fixed, the head itself trains
    x = torch.randn(2, 8, 6, 6)
    windowed = head(x)
    head.pool_window = None
    assert torch.equal(windowed, head(x))
    head.eval()
    head.pool_window = 2
    assert not torch.equal(windowed, head(x))


def test_rates_follow_the_output_stride():
    for stride, rates in ((16, (6, 12, 18)), (8, (12, 24, 32))):
        paths = DeepLabHead(small_arch(output_stride=stride), 8).paths
        assert tuple(path.new.conv.dilation[0] for path in paths) == (1, *rates)
