"""Store a trained checkpoint as the deployed model of `rcil demo`, in fp16 and with the default class colours.

Usage: python -m tools.demo_model build/demo-model/base/step0.safetensors
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rcil.checkpoint.file import load, save
from rcil.demo.run import BASE
from rcil.model.metadata import class_table


def store(source: Path, target: Path = BASE) -> None:
    """Write the checkpoint `source` to `target`."""
    network, metadata = load(source)
    colours = [c.colour for c in class_table(metadata.names_by_step)]
    classes = tuple(
        c.model_copy(update={"colour": colour}) for c, colour in zip(metadata.classes, colours, strict=True)
    )
    save(target, network, metadata.model_copy(update={"classes": classes}), half=True)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, {', '.join(network.names)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="The result of rcil train rcil/demo/base.yaml.")
    store(parser.parse_args().checkpoint)


if __name__ == "__main__":
    main()
