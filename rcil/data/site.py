"""The site folder, the layout for a user's own images.

    images/<split>/NAME.jpg|png    masks/<split>/NAME.png    classes.txt or dataset.yaml    [dataset.json: domains]

Without split folders, a random split is recorded in splits.json. It depends only on seed and names, so that images
added later do not move others.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rcil.core.documents import parse_json, parse_yaml
from rcil.core.drawing import Image, lut_of
from rcil.core.files import write_file
from rcil.core.images import SUFFIXES
from rcil.core.palette import Colour, colours_for, voc_colour
from rcil.core.reading import DataError, existing_folder, is_text, printable, read_lines
from rcil.data.types import IGNORE, ClassSpec, Sample, SegmentationData

LAYOUT = (
    "A site folder has images/<split>/*.jpg, masks/<split>/*.png and classes.txt, one name per line, background first."
)
RECORD = "splits.json"
HELD_OUT = 0.2
"""Share of `val` in a random split."""
_NOT_TEXT = "the name is not UTF-8; rename the file and its mask or image"


class NamedColour(Protocol):
    """A class with its name and colour, from a dataset or a model."""

    @property
    def name(self) -> str:
        """The name."""
        ...

    @property
    def colour(self) -> Colour:
        """RGB."""
        ...


@dataclass(frozen=True)
class Pairing:
    """Pairs of images and masks, and files without a partner."""

    splits: dict[str, list[Sample]] = field(default_factory=dict)
    problems: list[tuple[Path, str]] = field(default_factory=list)
    """Files and the errors of their pairing."""
    doubtful: list[tuple[Path, str]] = field(default_factory=list)
    """Files and warnings: the same name in several splits may be the same image."""


def read_site(root: Path, *, seed: int = 0, record: bool = True) -> SegmentationData:
    """Read a site folder. Raises for the first file without a partner.

    Args:
        root: The folder.
        seed: Seed of the random split, if there are no split folders.
        record: Record the random split in splits.json.
    """
    classes = read_classes(root)
    pairing = pair_files(root)
    if pairing.problems:
        path, message = pairing.problems[0]
        raise DataError(f"{path}: {message}", f"Run: rcil data check {root}")
    if not any(pairing.splits.values()):
        raise DataError(f"{root} holds no images", LAYOUT)
    domains = _read_domains(root)
    splits = {
        split: [replace(s, domain=domains.get(f"{split}/{s.name}" if split else s.name, "")) for s in samples]
        for split, samples in pairing.splits.items()
    }
    if list(splits) == [""]:
        splits = _recorded_split(root, splits[""], seed, record=record)
    return SegmentationData(root, classes, {name: tuple(samples) for name, samples in splits.items()})


def read_classes(root: Path) -> tuple[ClassSpec, ...]:
    """Read class names and colours from dataset.yaml or classes.txt; a name without a colour has its default colour."""
    described = root / "dataset.yaml"
    if described.exists():
        names, colours = _described_classes(described)
    else:
        names = [line for line in read_lines(root / "classes.txt", LAYOUT) if line]
        colours = {}
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or len(names) < 2 or len(names) > 255:
        what = f"names {', '.join(doubled)} twice" if doubled else f"names {len(names)} classes"
        raise DataError(f"{root} {what}", "Name background and 1 to 254 classes, each once.")
    shown = colours_for(names, {name: colours[name] for name in names if name in colours})
    return tuple(map(ClassSpec, names, shown))


def write_classes(site: Path, classes: Sequence[NamedColour]) -> str:
    """Write the class names and return the name of the file.

    This is classes.txt, or dataset.yaml if a class does not have its default colour, which classes.txt cannot store.
    """
    import yaml

    if tuple(c.colour for c in classes) == colours_for([c.name for c in classes]):
        name, text = "classes.txt", "".join(f"{c.name}\n" for c in classes)
    else:
        document = {"names": [c.name for c in classes], "colours": {c.name: list(c.colour) for c in classes}}
        name = "dataset.yaml"
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_file(site / name, text)
    return name


def palette_of(classes: Sequence[NamedColour]) -> Image:
    """Colours for `write_mask`, [256, 3]; ignored pixels have PASCAL VOC's colour for 255."""
    return lut_of({**{row: c.colour for row, c in enumerate(classes)}, IGNORE: voc_colour(IGNORE)})


def pair_files(root: Path) -> Pairing:
    """Match every image with the mask of the same name; files with no partner or two partners are problems."""
    images, masks = (existing_folder(root / name, LAYOUT) for name in ("images", "masks"))
    pairing = Pairing()
    found = _by_name(images, SUFFIXES, pairing)
    partners = _by_name(masks, (".png",), pairing)
    for key in sorted(found):
        split, name = key
        if key in partners:
            pairing.splits.setdefault(split, []).append(Sample(name, found[key], partners[key]))
        else:
            pairing.problems.append((found[key], "this image has no mask"))
    pairing.problems.extend((partners[key], "this mask has no image") for key in sorted(partners.keys() - found.keys()))
    if "" in pairing.splits and len(pairing.splits) > 1:
        loose = pairing.splits.pop("")
        pairing.problems.extend((sample.image, "this image is outside the split folders") for sample in loose)
    by_name = defaultdict(list)
    for split, samples in pairing.splits.items():
        for sample in samples:
            by_name[sample.name].append((split, sample.image))
    for name in sorted(name for name, where in by_name.items() if len(where) > 1):
        splits = ", ".join(split for split, _ in by_name[name])
        pairing.doubtful.append((by_name[name][0][1], f"the name {name} is in several splits: {splits}"))
    return pairing


def _read_domains(root: Path) -> dict[str, str]:
    """`split/name` -> domain from dataset.json, which generated sites have; empty without that file."""
    path = root / "dataset.json"
    if not path.exists():
        return {}
    try:
        recorded = parse_json(path.read_text(encoding="utf-8"))["image_domains"]
        return {str(name): str(domain) for name, domain in recorded.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} has no table image_domains", "Delete it; domains are optional.") from error


def _by_name(folder: Path, suffixes: tuple[str, ...], pairing: Pairing) -> dict[tuple[str, str], Path]:
    """(split, name) -> file; a second file of the same name is a problem."""
    result: dict[tuple[str, str], Path] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in suffixes and p.is_file()):
        if not is_text(path):
            pairing.problems.append((Path(printable(path)), _NOT_TEXT))
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        split, name = (parts[0], "/".join(parts[1:])) if len(parts) > 1 else ("", parts[0])
        if (split, name) in result:
            pairing.problems.append((path, f"{result[split, name].name} has the same name"))
        else:
            result[split, name] = path
    return result


def _described_classes(path: Path) -> tuple[list[str], dict[str, tuple[int, int, int]]]:
    """Names and colours of dataset.yaml: `names` a list or a map from id, `colours` a map from name to [r, g, b]."""
    try:
        document: Any = parse_yaml(path.read_text(encoding="utf-8"))
        names = document["names"]
        if isinstance(names, dict):
            names = [names[index] for index in range(len(names))]
        colours = {str(name): _colour(value) for name, value in (document.get("colours") or {}).items()}
        return [str(name) for name in names], colours
    except (OSError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{path} does not describe classes ({type(error).__name__})",
            "Write `names: [background, ...]` and, if wanted, `colours: {name: [r, g, b]}`.",
        ) from error


def _colour(value: Any) -> tuple[int, int, int]:
    red, green, blue = (int(v) for v in value)
    if not all(0 <= v <= 255 for v in (red, green, blue)):
        raise ValueError(value)
    return red, green, blue


def _recorded_split(root: Path, samples: list[Sample], seed: int, *, record: bool) -> dict[str, list[Sample]]:
    """The split in splits.json. Samples that it does not name are assigned by seed and added to the file."""
    path, held_out = root / RECORD, HELD_OUT
    known: dict[str, str] = {}
    if path.exists():
        try:
            noted = parse_json(path.read_text(encoding="utf-8"))
            known = {name: split for split in ("train", "val") for name in noted[split]}
            seed, held_out = int(noted["seed"]), float(noted["held_out"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(f"{path} is damaged", "Delete it to create a new split.") from error
    splits: dict[str, list[Sample]] = {"train": [], "val": []}
    for sample in samples:
        splits[known.get(sample.name) or _assigned(sample.name, seed, held_out)].append(sample)
    if record and any(sample.name not in known for sample in samples):
        document = {"seed": seed, "held_out": held_out, **{k: [s.name for s in v] for k, v in splits.items()}}
        write_file(path, json.dumps(document, indent=1) + "\n")
    return splits


def _assigned(name: str, seed: int, held_out: float) -> str:
    """The split of a name, which depends only on name and seed."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return "val" if int.from_bytes(digest[:8], "big") < held_out * 2**64 else "train"
