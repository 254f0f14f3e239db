"""Recognise the format of an annotation export by its files. Nothing is parsed: damaged files keep their format."""

from __future__ import annotations

import itertools
from pathlib import Path

from rcil.core.reading import DataError, read_bytes
from rcil.data.converters.annotations import json_files
from rcil.data.converters.roboflow import CLASSES

_HINT = "Check the path."
_SAMPLED = 3
"""Number of JSON files that are looked at."""
SIGNS = {
    "cvat": "annotations.xml, or labelmap.txt with SegmentationClass/",
    "coco": "annotations/instances_*.json, */_annotations.coco.json, or JSON with images, annotations and categories",
    "label-studio": "a JSON list of tasks with data and annotations or predictions",
    "via": "a JSON or CSV file with region attributes",
    "labelme": "JSON files with shapes",
    "roboflow": "_classes.csv next to *_mask.png",
    "yolo": "labels/**/*.txt or */labels/*.txt with data.yaml or classes.txt",
}
"""What each format is recognised by."""


def detect_format(source: Path) -> str:
    """The name of the format; raises with what was looked for if there is none, or several."""
    found = _by_layout(source) if source.is_dir() else []
    files = [source] if source.is_file() else list(itertools.islice(_candidates(source), _SAMPLED))
    found = found or sorted({kind for path in files if (kind := _by_content(path))})
    if len(found) == 1:
        return found[0]
    looked = "; ".join(f"{name}: {sign}" for name, sign in SIGNS.items())
    if not found:
        raise DataError(
            f"the format of {source} is not recognised", f"Name it, or check the path. Looked for {looked}."
        )
    raise DataError(f"{source} looks like {' and '.join(found)}", "Name the format.")


def _by_layout(folder: Path) -> list[str]:
    """Formats that are known by names of files."""
    found = []
    if (folder / "annotations.xml").is_file() or (folder / "SegmentationClass").is_dir():
        found.append("cvat")
    if any((folder / "annotations").glob("instances_*.json")):
        found.append("coco")
    if (folder / CLASSES).is_file() or any(folder.glob(f"*/{CLASSES}")):
        found.append("roboflow")
    if any((folder / "labels").rglob("*.txt")) or any(folder.glob("*/labels/*.txt")):
        found.append("yolo")
    return found


def _candidates(folder: Path) -> list[Path]:
    """Files whose content tells: those at the top first."""
    tops = [*sorted(folder.glob("*.json")), *sorted(folder.glob("*.csv"))]
    return [path for path in tops if path.name != "prelabel.json"] or json_files(folder)


def _by_content(path: Path) -> str | None:
    """The format of a file, by words that it holds."""
    data = read_bytes(path, _HINT)
    suffix = path.suffix.lower()

    def holds(*words: bytes) -> bool:
        return all(word in data for word in words)

    if suffix == ".xml" or (suffix not in (".json", ".csv") and data.lstrip().startswith(b"<")):
        return "cvat" if holds(b"<annotations") else None
    if suffix == ".csv":
        return "via" if holds(b"region_shape_attributes") else None
    if holds(b'"shape_attributes"') or holds(b'"_via_img_metadata"') or holds(b'"data_format_version"'):
        return "via"
    if holds(b'"images"', b'"annotations"', b'"categories"'):
        return "coco"
    listed = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if listed and (holds(b'"data"') or holds(b'"annotation_id"')):  # the second one is JSON-MIN, which lacks much
        return "label-studio"
    return "labelme" if holds(b'"shapes"') else None
