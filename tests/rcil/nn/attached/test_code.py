"""Code around the layers of a network: what it may look at, where layers may be kept, which sizes are found."""

import pytest
import torch
from networks import randomise

from rcil.core.allowed_imports import allowing
from rcil.core.errors import ConfigError
from rcil.nn import fold
from rcil.nn.attached.attach import attach_network
from rcil.nn.attached.builders import build_module
from rcil.nn.step import add_branches

NAMES = ["background", "ball", "cone"]


@pytest.fixture(autouse=True)
def allowed():
    with allowing(["odd_code"]):
        yield


def attached(name, args=None):
    torch.manual_seed(0)
    args = {"classes": 3, **(args or {})}
    net = build_module(f"odd_code:{name}", args)
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            randomise(part)
    return attach_network(net, f"odd_code:{name}", args, NAMES)


@pytest.mark.parametrize(("name", "units"), [("AsksType", ["body.0"]), ("SomeWeights", ["free"])])
@torch.no_grad()
def test_convs_that_the_code_looks_at_are_left_alone(name, units):
    network = attached(name).double()
    assert [unit.conv for unit in network.arch.units if unit.rc] == units
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    branched = add_branches(network).eval()
    assert branched(x) == pytest.approx(network(x), abs=1e-10)
    assert fold(branched)[0](x) == pytest.approx(network(x), abs=1e-10)


@pytest.mark.parametrize(("args", "multiple"), [({}, 14), ({"side": 24}, 24), ({"side": 10}, 10), ({"side": 32}, 32)])
@torch.no_grad()
def test_multiples_of_any_number(args, multiple):
    network = attached("Patches", args)
    assert network.arch.multiple == multiple
    assert network(torch.zeros(1, 3, 50, 70)).shape == (1, 3, 50, 70)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AsksWeight", r"the code around 'body\.0' reads its weights or type"),
        ("Closure", r"the module 'call' reads a parameter \[8, 8, 3, 3\] that is in no module"),
        ("Unregistered", r"the forward function reads a parameter \[8, 8, 3, 3\] that is in no module"),
        ("RandomTensor", "does not build the same network again"),
        ("SkipsInTraining", "the module 'body' of odd_code:SkipsInTraining, whose map is distilled, does not run"),
        ("Square", "square images only"),
        ("Positions", "images of 128 x 128 pixels only"),
    ],
)
def test_refusals(name, said):
    with pytest.raises(ConfigError, match=said):
        attached(name)
