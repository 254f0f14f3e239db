"""Networks of real libraries, with random weights. They are skipped where the libraries are not installed."""

import importlib.util

import pytest
import torch

from rcil.attaching.check import check_network
from rcil.core.errors import RcilError
from tools.networks import NETWORKS, SMALL, SMP

TINY = {**SMALL, "encoder_name": "resnet18", "encoder_depth": 3, "decoder_channels": [32, 16, 8]}

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries


def checked(factory, args, *, export):
    for package in ("torchvision", factory.partition(":")[0].partition(".")[0]):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `make test-all` installs it")
    with torch.random.fork_rng():
        return check_network(factory, args, export=export, say=lambda text: None)


def test_a_small_unet():
    found = checked(f"{SMP}:Unet", TINY, export=False)
    assert found.problems == []
    assert found.fold64 < 1e-10
    assert found.pairs > found.branches > 0  # the stem and 1x1 convs have norms and no branches


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_everything_works(name):
    found = checked(*NETWORKS[name], export=True)
    assert found.problems == []
    assert found.fold64 < 1e-10
    assert found.fold32 < 1e-4
    assert found.certificate == "4 of 4 proved"
    assert found.route == "torch.onnx"


@pytest.mark.slow
def test_probabilities_are_refused():
    with pytest.raises(RcilError, match="segmentation_head"):
        checked(f"{SMP}:Unet", {**TINY, "activation": "softmax2d"}, export=False)
