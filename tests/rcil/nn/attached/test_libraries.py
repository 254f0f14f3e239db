"""Networks of real libraries, with random weights. They are skipped where the libraries are not installed."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sites import make_site

from rcil import defaults
from rcil.attaching.check import check_network
from rcil.core.allowed_imports import allowing
from rcil.core.errors import RcilError
from rcil.nn.attached.builders import build_module
from tools.networks import NETWORKS, PAGE, SMALL, SMP

TINY = {**SMALL, "encoder_name": "resnet18", "encoder_depth": 3, "decoder_channels": [32, 16, 8]}

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries


def require(factory):
    for package in ("torchvision", factory.partition(":")[0].partition(".")[0]):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `make test-all` installs it")


def checked(factory, args, *, export):
    require(factory)
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


@pytest.mark.slow
def test_the_first_lines_of_the_page(tmp_path, monkeypatch):
    """The example of docs/networks.md as it is written, with a small site and a short time limit."""
    require(SMP)
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1]
    site = make_site(tmp_path / "my_site", images=4)
    (site / "classes.txt").write_text("background\nroad\nforklift\n")
    args = {"encoder_name": "resnet18", "encoder_weights": None}
    with allowing([SMP]), torch.random.fork_rng():
        torch.manual_seed(0)
        before = build_module(f"{SMP}:Unet", {**args, "classes": 4})
        after = build_module(f"{SMP}:Unet", {**args, "classes": 5})
    save_file(before.state_dict(), tmp_path / "mine.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(defaults, "CPU_MINUTES", 1.0)
    found = {}
    exec(code, found)
    assert found["report"].model == Path("forklift/model.safetensors")
    assert type(found["plain"]) is type(after)
    after.load_state_dict(found["plain"].state_dict())
    x = torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, logits = found["new"].network(x), after(x)
    assert (logits - expected).abs().max() < 1e-4 * (expected.max() - expected.min())
