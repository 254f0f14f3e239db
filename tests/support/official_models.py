"""The small official network as ours, at the start of each step."""

from __future__ import annotations

from pathlib import Path

import torch
from official_recipe import golden_json, image, parameter, state_dict

from rcil.checkpoint.importers.official import segmenter_of
from rcil.nn import Maps, Segmenter, begin_step

TINY = golden_json("official_tiny")


def official_step0(source: Path, **options: object) -> Segmenter:
    return segmenter_of(state_dict(TINY["keys_step0"]), source, **options)[0].double()


def official_start(model: Segmenter, bias_key: str, count: int) -> Segmenter:
    """The official start of a step: merged in float32, new rows copy background, their bias by the recipe."""
    student = begin_step(model.float(), [f"{bias_key}{i}" for i in range(count)]).eval()
    model.double()
    with torch.no_grad():
        student.classifier.groups[-1].bias.copy_(parameter(bias_key, (count,)))
    return student.double()


def run(model: Segmenter, name: str = "small") -> Maps:
    x = image(name).to(next(model.parameters()).dtype)
    with torch.no_grad():
        return model(x, maps="after")
