"""Why a network trained on small crops does worse on whole images: `python -m tools.results.larger_images`.

Step 0 of CamVid is trained on crops of 80 pixels, whose map has 5x5 cells. The same network segments the same frames
cut into tiles, and whole; then with the dilated taps cut off, which see only padding in such crops; and with the pooled
path averaging over a window of a crop's size instead of the whole image. Needs the runs of `camvid-6-1-overlapped`.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from rcil.checkpoint.file import load
from rcil.data.site import read_site
from rcil.evaluation.evaluate import evaluate
from rcil.inference import Model
from rcil.model.metadata import Metadata
from rcil.nn import Segmenter, fold
from tools.results.cells import cells_of
from tools.results.tables import TABLES

EVERY, SCALE, WINDOW = 6, 0.5, 5
"""Every sixth test frame is used; side of the feature map of a crop."""


def study(model: Segmenter, metadata: Metadata, whole: Path, tiles: Path) -> dict[str, float]:
    """Mean IoU of tiles and of whole images, as trained and with each of the two changes."""
    network, photos, pieces = fold(model.eval())[0], read_site(whole), read_site(tiles)
    frames = photos.splits["val"][::EVERY]
    cut = [s for s in pieces.splits["val"] if any(s.name.startswith(f"{frame.name}_") for frame in frames)]

    def on_whole(form: Segmenter) -> float:
        return evaluate(Model(form, metadata), photos, frames, scale=SCALE).all

    return {
        "tiles": evaluate(Model(network, metadata), pieces, cut).all,
        "tiles, centre taps alone": evaluate(Model(centre_taps(network), metadata), pieces, cut).all,
        "whole": on_whole(network),
        "whole, centre taps alone": on_whole(centre_taps(network)),
        "whole, pooled over a crop's size": on_whole(windowed(network, WINDOW)),
    }


def centre_taps(network: Segmenter) -> Segmenter:
    """Return a copy whose dilated convs in the head keep their centre tap only."""
    changed = copy.deepcopy(network)
    for conv in changed.head.modules():
        if isinstance(conv, nn.Conv2d) and conv.dilation[0] > 1:
            mask = torch.zeros(conv.kernel_size)
            mask[1, 1] = 1
            conv.weight.data.mul_(mask)
    return changed


def windowed(network: Segmenter, window: int) -> Segmenter:
    """Return a copy whose pooled path averages over a window."""
    changed = copy.deepcopy(network)
    changed.head.pool_window = window
    return changed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("results"), help="folder of data and runs (results)")
    parser.add_argument("--camvid", type=Path, required=True, help="folder with CamVid: images/, masks/, classes.txt")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = options.runs / "data"
    cell = next(cell for cell in cells_of(TABLES["camvid-6-1-overlapped"], data) if cell.row == "RCIL")
    model, metadata = load(options.runs / "runs" / cell.id / "step0.safetensors")
    assert isinstance(model, Segmenter)
    found = study(model, metadata, options.camvid, data / "camvid")
    for name, miou in found.items():
        print(f"{name:34} {miou:.1%}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
