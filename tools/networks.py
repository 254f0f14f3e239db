"""Fill the table of docs/networks.md: `python -m tools.networks` checks networks of other libraries one by one.

`python -m tools.networks NAME` checks one of them and updates its row.
`make networks` installs the libraries. Networks have random weights, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rcil.core.files import write_file
from tools.pages import filled, part

PAGE = Path(__file__).parents[1] / "docs" / "networks.md"
SMP, VISION, HUGGING = "segmentation_models_pytorch", "torchvision.models.segmentation", "transformers"
BARE = {"weights": None, "weights_backbone": None, "num_classes": 4}
SMALL = {"encoder_weights": None, "classes": 4}
CONFIG = {"factory": f"{HUGGING}:MobileNetV2Config", "args": {"num_labels": 4}}
SEGFORMER = {"factory": f"{HUGGING}:SegformerConfig", "args": {"num_labels": 4}}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "deeplabv3": (f"{VISION}:deeplabv3_resnet50", {**BARE, "aux_loss": True}),
    "fcn": (f"{VISION}:fcn_resnet50", {**BARE, "aux_loss": True}),
    "lraspp": (f"{VISION}:lraspp_mobilenet_v3_large", BARE),
    "unet": (f"{SMP}:Unet", {**SMALL, "encoder_name": "resnet18"}),
    "unet-timm": (f"{SMP}:Unet", {**SMALL, "encoder_name": "tu-mobilenetv3_small_100"}),
    "fpn": (f"{SMP}:FPN", {**SMALL, "encoder_name": "tu-mobilenetv3_small_100"}),
    "deeplabv3plus": (f"{SMP}:DeepLabV3Plus", {**SMALL, "encoder_name": "resnet18"}),
    "pan": (f"{SMP}:PAN", {**SMALL, "encoder_name": "resnet18"}),
    "mobilenetv2": (f"{HUGGING}:MobileNetV2ForSemanticSegmentation", {"config": CONFIG}),
    "segformer": (f"{HUGGING}:SegformerForSemanticSegmentation", {"config": SEGFORMER}),
    "unetplusplus": (f"{SMP}:UnetPlusPlus", {**SMALL, "encoder_name": "tu-efficientnet_lite0"}),
    "linknet": (f"{SMP}:Linknet", {**SMALL, "encoder_name": "resnet18"}),
    "upernet": (f"{SMP}:UPerNet", {**SMALL, "encoder_name": "tu-convnext_atto"}),
    "manet": (f"{SMP}:MAnet", {**SMALL, "encoder_name": "tu-regnety_002"}),
    "pspnet": (f"{SMP}:PSPNet", {**SMALL, "encoder_name": "resnet18"}),
}


def row_of(factory: str, args: dict[str, Any]) -> list[str]:
    """The lines of the table that the command prints: head, rule and row; one row with the error if it fails."""
    command = [sys.executable, "-m", "rcil", "--quiet", "attach", "--check", factory, "--args", json.dumps(args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return lines or [f"| {factory} | failed: {(done.stderr.splitlines() or ['?'])[0]} |"]


def updated(table: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The table with the last of `lines`, in place of the row of the same network if there is one."""
    *head, row = lines
    rows = {line.split("|")[1].strip(): line for line in (*table[2:], row)}
    return [*(table[:2] or head), *rows.values()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Check all or some networks, and update their rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks to check (all)")
    options = parser.parse_args(arguments)
    for name in options.names or NETWORKS:
        lines = row_of(*NETWORKS[name])
        print(lines[-1], flush=True)
        text = PAGE.read_text(encoding="utf-8")
        write_file(PAGE, filled(text, {"table": updated(part(text, "table"), lines)}))


if __name__ == "__main__":
    main()
