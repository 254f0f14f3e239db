"""Defaults that commands and Python functions share. Importing this module is cheap, so that `--help` stays fast."""

from typing import Literal

SCALE = 1.0
MAX_SCALE = 4.0
"""Largest factor by which images can be resized for a network."""
SEED = 0
MAX_SEED = 2**32 - 1

# rcil add-class
METHOD = "rcil-plus"
WORKERS = 2
CPU_MINUTES = 10.0
MAX_MINUTES = 10_080.0
MAX_CROP = 4096
MAX_BATCH = 1024
MAX_LR = 1.0
MAX_DROP = 5.0
MIN_NEW = 20.0
"""Minimum IoU of a new class in percent: an F1 score of one third, at which about two of three marked pixels are wrong
and two of three pixels of the class are missed. Below that the class is of no use. Thin objects such as poles do not
reach much more with a good model, which a higher default would reject."""

# rcil prelabel
MIN_CONFIDENCE = 0.5

# rcil pick
PICKED = 50

# rcil eval
SPLIT = "val"

# rcil refit
TRAINING_SPLIT = "train"
REFIT_IMAGES = 200
"""Approximate number of whole images that rows are fitted to."""

# rcil import
OUTPUT_STRIDE = 16
POOL_WINDOW = 32
NORM: Literal["abs"] = "abs"

# rcil data make-site
IMAGES = 250
IMAGE_SIZE = (240, 320)
FRAMES = 48
