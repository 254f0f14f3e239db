import numpy as np
import pytest
import torch
from sites import make_site, write_sample

from rcil.checkpoint.file import save
from rcil.model.architecture import Architecture
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil.nn import build
from rcil.site.request import make_request

TRAINING = {"epochs": (1, 1), "lr": (0.02, 0.02), "batch": 4, "crop": 64, "workers": 0, "save_every": 100}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Classes background, ball, cone in `train` and `val`; nothing writes to it."""
    return make_site(tmp_path_factory.mktemp("data") / "site", images=8)


@pytest.fixture(scope="session")
def cones(tmp_path_factory):
    """Like `site`, but the balls are background: what an engineer labels who wants cones."""
    root = tmp_path_factory.mktemp("data") / "cones"
    mask = np.zeros((64, 96), np.uint8)
    mask[8:48, 4:44], mask[8:48, 50:90] = 1, 2
    for split in ("train", "val"):
        for index in range(6):
            write_sample(root, split, f"{split}_{index}", mask)
            write_sample(root / "labels", split, f"{split}_{index}", np.where(mask == 2, 1, 0))
            label = root / "masks" / split / f"{split}_{index}.png"
            (root / "labels" / "masks" / split / f"{split}_{index}.png").replace(label)
    (root / "classes.txt").write_text("background\ncone\n")
    return root


@pytest.fixture(scope="session")
def old_model(tmp_path_factory):
    """A checkpoint with rows for background and ball and random weights: what it sees is as good as anything."""
    torch.manual_seed(0)
    model = build(Architecture(backbone="resnet18", width=4, head_width=8), [["background", "ball"]])
    entry = LineageEntry(step=0, source="train")
    metadata = Metadata(
        architecture=model.arch, classes=class_table([["background", "ball"]]), std=(0.2, 0.2, 0.2), lineage=(entry,)
    )
    path = tmp_path_factory.mktemp("old") / "step0.safetensors"
    save(path, model, metadata)
    return path


@pytest.fixture(scope="session")
def ask(old_model, site):
    """Makes requests for cones; fields and overrides can be changed."""

    def make(*overrides, **fields):
        document = {
            "model": old_model,
            "data": site,
            "classes": ["cone"],
            "method": {"name": "rcil"},
            "training": TRAINING,
        }
        return make_request(document | fields, overrides)

    return make


class Painter(torch.nn.Module):
    """Reads a row from the brightness that the test sites give their classes: background, ball, cone."""

    arch = Architecture(backbone="resnet18", rc=None, folded=True)

    def __init__(self, rows, classes):
        super().__init__()
        self.rows = torch.tensor(rows)
        self.classes = classes

    def forward(self, x):
        ids = (((x[:, 0] * 0.229 + 0.485) * 255 - 20) / 60).round().long().clamp(0, 2)
        return 20 * torch.nn.functional.one_hot(self.rows[ids], self.classes).permute(0, 3, 1, 2).float()


@pytest.fixture
def painter():
    return Painter


@pytest.fixture
def described():
    """Metadata of a model with these classes by step."""

    def make(*steps):
        from networks import small_arch

        return Metadata(architecture=small_arch(), classes=class_table([list(s) for s in steps]), step=len(steps) - 1)

    return make
