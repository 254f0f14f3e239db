"""Fill the table of docs/networks.md: `python -m tools.networks` checks networks of other libraries one by one.

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

PAGE = Path(__file__).parents[1] / "docs" / "networks.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
SMP, VISION, HUGGING = "segmentation_models_pytorch", "torchvision.models.segmentation", "transformers"
BARE = {"weights": None, "weights_backbone": None, "num_classes": 4}
SMALL = {"encoder_weights": None, "classes": 4}
CONFIG = {"factory": f"{HUGGING}:MobileNetV2Config", "args": {"num_labels": 4}}
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
}


def row_of(factory: str, args: dict[str, Any]) -> list[str]:
    """The last lines that the command prints: the head of the table, its rule and the row; the error if it fails."""
    command = [sys.executable, "-m", "rcil", "--quiet", "attach", "--check", factory, "--args", json.dumps(args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return lines or ["", "", f"| {factory} | failed: {(done.stderr.splitlines() or ['?'])[0]} |"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Check all or some networks, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks to check (all)")
    options = parser.parse_args(arguments)
    table: list[str] = []
    for name in options.names or NETWORKS:
        head, rule, row = row_of(*NETWORKS[name])
        table += [row] if table else [head, rule, row]
        print(row, flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_file(PAGE, before + BEGIN + "".join(f"{line}\n" for line in table) + END + after)


if __name__ == "__main__":
    main()
