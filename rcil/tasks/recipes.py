"""Default settings of the network and the training, by kind of data.

`paper` is empty: the defaults of the task sections are the paper's for VOC. `site` is for a few hundred to a few
thousand images of one place, a CPU or a small GPU, and a backbone with ImageNet weights. `docs/results/joint.md` shows
what it reaches.
"""

from __future__ import annotations

from typing import Any, Literal

Recipe = Literal["site", "paper"]
CROP = 256
SITE_NETWORK: dict[str, Any] = {"backbone": "efficientnet_lite0", "head": "deeplabv3plus", "head_width": 128}
SITE_TRAINING: dict[str, Any] = {
    "epochs": (30, 10),
    "epoch_images": 640,  # so that a step takes 80 iterations per epoch, however many images there are
    "batch": 8,
    "crop": CROP,
    "optimiser": "adamw",
    "lr": (1e-3, 1e-3),
    "classifier_lr": 5.0,
    "weight_decay": 0.01,
    "warmup": 1.0,
    "ema": 0.99,
    "class_weights": "root_frequency",
    "jitter": 0.3,
    "focus": 0.5,
    "oversample": 0.5,
    "held_out": 0.1,
    "validate_every": 5,
    "validate_images": 100,
}


def with_recipe(document: dict[str, Any]) -> dict[str, Any]:
    """A task document whose sections have the recipe's values for every key that they do not have themselves.

    The pooling window of the head follows the crop. EfficientNets, whose ImageNet weights are installed, start from
    these, and train in the channels-last memory format, which is faster for them.
    """
    data = document.get("data")
    kind = data.get("kind", "site") if isinstance(data, dict) else getattr(data, "kind", "site")
    recipe = document.get("recipe") or ("site" if kind == "site" else "paper")
    document = {**document, "recipe": recipe}
    if recipe != "site":
        return document
    network, training = document.get("network", {}), document.get("training", {})
    crop = getattr(training, "crop", None)
    if isinstance(training, dict):
        document["training"] = training = SITE_TRAINING | training
        crop = training["crop"]
    if isinstance(network, dict):
        network = SITE_NETWORK | network
        if str(network["backbone"]).startswith("efficientnet_lite"):
            network.setdefault("pretrained", "imagenet")
            if isinstance(training, dict):
                training.setdefault("channels_last", True)
        stride = network.get("output_stride", 16)
        if isinstance(crop, int) and stride in (8, 16):
            network.setdefault("pool_window", max(1, crop // stride))
        document["network"] = network
    return document
