"""The three datasets in miniature, with every class, and enough images for every step of every preset."""

import pytest
from layouts import stripes, write_ade, write_frame, write_voc

from rcil.data.datasets.cityscapes import CITIES, RAW_IDS


@pytest.fixture(scope="session")
def roots(tmp_path_factory):
    """Folder of each kind of dataset."""
    root = tmp_path_factory.mktemp("datasets")
    train = {f"2008_{c:02d}{index:04d}": stripes(0, c) for index in range(6) for c in range(1, 21)}
    write_voc(
        root / "voc", {"train": train, "val": {"2007_000001": stripes(*range(21)), "2007_000002": stripes(0, 20)}}
    )
    singles = [stripes(0, c) for _ in range(2) for c in range(1, 151)]
    write_ade(root / "ade", singles, [stripes(*range(0, 151, 5)), stripes(0, 150)])
    for city in CITIES:
        for index in range(10):
            name = f"{city}_{index:06d}_000019"
            write_frame(root / "cityscapes", "val" if city in CITIES[-3:] else "train", name, stripes(*RAW_IDS))
    return {kind: root / kind for kind in ("voc", "ade", "cityscapes")}


@pytest.fixture(scope="session")
def tiny(roots):
    """Overrides that make a preset of a kind of dataset train in seconds."""
    network = ["network.backbone=resnet18", "network.width=4", "network.head_width=8", "network.pretrained=null"]
    training = {"held_out": 0.5, "batch": 64, "crop": 32, "epochs": "[1, 1]", "workers": 0, "device": "cpu"}
    training_keys = [f"training.{key}={value}" for key, value in training.items()]
    return lambda kind: [f"data.root={roots[kind]}", *network, *training_keys]
