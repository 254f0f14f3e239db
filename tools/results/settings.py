"""Settings that tables share: data, networks, schedules, class orders, and the options of every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CAMVID_CLASSES = (
    "sky",
    "building",
    "pole",
    "road",
    "pavement",
    "tree",
    "sign",
    "fence",
    "car",
    "pedestrian",
    "bicyclist",
)
CAMVID_ORDERS = {
    "a": ("tree", "car", "pavement", "fence", "bicyclist"),
    "b": ("pedestrian", "pavement", "tree", "car", "fence"),
    "c": ("sign", "sky", "tree", "pavement", "bicyclist"),
}
"""The later classes of three orders, each with large and rare ones; the other six come first."""
SITE_CLASSES = ("road", "building", "vegetation", "person", "vehicle", "crate", "barrier", "cone", "sign", "ball")
SITE_ORDERS = {
    "a": ("vegetation", "vehicle", "barrier", "crate", "cone"),
    "b": ("person", "vehicle", "crate", "barrier", "cone"),
    "c": ("building", "vehicle", "person", "barrier", "cone"),
}

TRAINING: dict[str, Any] = {
    "optimiser": "adamw",
    "weight_decay": 0.01,
    "scale": [0.75, 1.5],
    "focus": 0.7,
    "classifier_lr": 10.0,
    "validate_every": 100,  # the last epoch is the result
    "validate_images": 4,
    "workers": 0,
    "channels_last": True,
}
CAMVID: dict[str, Any] = {
    "network": {"backbone": "efficientnet_lite0", "head_width": 64, "pretrained": "imagenet"},
    "training": {**TRAINING, "epochs": [6, 1], "lr": [0.002, 0.001], "batch": 6, "epoch_images": 324, "crop": 80},
}
"""EfficientNet-lite0 from ImageNet; 324 iterations for step 0, 54 for each later one."""
SITE: dict[str, Any] = {
    "network": {"backbone": "resnet18", "blocks": [1, 1, 1, 1], "width": 16, "head_width": 64, "output_stride": 8},
    "training": {**TRAINING, "epochs": [30, 2], "lr": [0.005, 0.005], "batch": 6, "epoch_images": 180, "crop": 96},
}
"""96x96 pixels, a ResNet of four blocks from random weights; 900 iterations for step 0, 60 for each later one."""
BASES = {"camvid": CAMVID, "site": SITE}
ALL_AT_ONCE = {"camvid": 11, "site": 40}
"""Epochs of joint training: those of all six steps together."""
TWO_STEPS = {"camvid": 2, "site": 4}
"""Epochs of the later step when it brings five classes at once."""

PAPER: dict[str, dict[str, Any]] = {
    "fine-tuning": {},
    "lwf": {"weight": 100.0},
    "lwf-mc": {"weight": 10.0},
    "ilt": {"weight": 100.0, "encoder_weight": 100.0},
    "mib": {"weight": 10.0},
    "sdr": {"weight": 100.0},
    "plop": {"factor": 0.01, "logits_factor": 0.0005},
    "rcil": {"late": True, "distillation": 100.0, "gamma": 0.01},
    "rcil-plus": {
        "late": True,
        "distillation": 100.0,
        "gamma": 0.01,
        "taught": True,
        "refit": True,
        "balance": "new",
        "fuse": True,
    },
}
"""Weights of the papers, for ResNet-101 and thousands of iterations. `late`: all methods share a plain step 0. RCIL+ is
the combination chosen on the held-out images of the tables `*-beyond`; on the site, whose network starts from random
weights, without `fuse`."""
TRIED = dict.fromkeys(("lwf", "lwf-mc", "ilt", "mib", "sdr", "plop"), (1.0, 0.1))
"""Factors by which the papers' weights are multiplied."""
LAMBDAS, GAMMAS = (1.0, 4.0, 20.0), (0.0001, 0.001)
"""Values to try for RCIL: all lambdas with the first gamma."""
CHOSEN: dict[tuple[str, int], dict[str, dict[str, Any]]] = {
    ("camvid", 1): {"rcil": {"distillation": 1.0, "gamma": 0.0001}},
    ("camvid", 5): {
        "mib": {"weight": 1.0},
        "sdr": {"weight": 10.0},
        "plop": {"factor": 0.001, "logits_factor": 0.00005},
        "rcil": {"distillation": 1.0, "gamma": 0.0001},
    },
    ("site", 1): {
        "sdr": {"weight": 10.0},
        "plop": {"factor": 0.001, "logits_factor": 0.00005},
        "rcil": {"distillation": 4.0, "gamma": 0.0001},
        "rcil-plus": {"fuse": False},
    },
    ("site", 5): {
        "lwf": {"weight": 10.0},
        "sdr": {"weight": 10.0},
        "plop": {"factor": 0.001, "logits_factor": 0.00005},
        "rcil": {"distillation": 4.0, "gamma": 0.0001},
        "rcil-plus": {"fuse": False},
    },
}
"""Weights of `weights_to_try` that were best on the held-out images, by data and classes per step."""


def options_of(data: str, method: str, per_step: int) -> dict[str, Any]:
    """Options of a method on the data called `data`. Steps that add domains use those for one class per step."""
    chosen = CHOSEN.get((data, per_step), {})
    inherited = chosen.get("rcil", {}) if method == "rcil-plus" else {}
    return {**PAPER[method], **inherited, **chosen.get(method, {})}


def weights_to_try() -> dict[str, tuple[str, dict[str, Any]]]:
    """Method and options of every row."""
    rows: dict[str, tuple[str, dict[str, Any]]] = {}
    for method, shares in TRIED.items():
        names = [name for name in PAPER[method] if name in ("weight", "encoder_weight", "factor", "logits_factor")]
        for share in shares:
            options = {name: PAPER[method][name] * share for name in names}
            rows[f"{method}, {share:g} times the paper's"] = method, options
    for distillation in LAMBDAS:
        options = {**PAPER["rcil"], "distillation": distillation, "gamma": GAMMAS[0]}
        rows[f"rcil, lambda {distillation:g}, gamma {GAMMAS[0]:g}"] = "rcil", options
    return rows


def steps_of(classes: Sequence[str], later: Sequence[str], per_step: int) -> list[list[str]]:
    """Class names of each step: first those not in `later`, then `per_step` at a time."""
    first = [name for name in classes if name not in later]
    return [first, *(list(later[start : start + per_step]) for start in range(0, len(later), per_step))]


def orders_of(data: str) -> tuple[Sequence[str], Mapping[str, Sequence[str]]]:
    """Return all classes, and the later ones of each order."""
    return (CAMVID_CLASSES, CAMVID_ORDERS) if data == "camvid" else (SITE_CLASSES, SITE_ORDERS)
