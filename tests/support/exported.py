"""Exports of labelling tools, as small files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np


def put_image(path: Path, height: int = 6, width: int = 8) -> Path:
    """A grey image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((height, width, 3), 90, np.uint8))
    return path


def put_json(path: Path, document: Any) -> Path:
    """A JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def box(top: int, bottom: int, left: int, right: int, value: int = 1, height: int = 6, width: int = 8) -> Any:
    """A mask with one filled box; all bounds are inside."""
    mask = np.zeros((height, width), np.uint8)
    mask[top : bottom + 1, left : right + 1] = value
    return mask
