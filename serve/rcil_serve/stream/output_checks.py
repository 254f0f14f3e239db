"""Outputs that would take the place of what is read, or of each other; looked for before anything is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rcil.core.errors import ConfigError
from rcil_serve.stream.outputs.growing_file import part_of
from rcil_serve.stream.sources.open import local_files

ELSEWHERE = "Choose another place for it."


def check_no_overwrite(source: str, models: Iterable[Path], outputs: Mapping[str, Path]) -> None:
    """Raise if writing would destroy an input or another output.

    Args:
        source: As the user typed it.
        models: Files that are read too.
        outputs: Files to write, by name; their temporary names are looked at too.
    """
    inputs = {_resolved(path): path for path in (*local_files(source), *models)}
    taken: dict[Path, str] = {}
    for name, path in outputs.items():
        for place in {_resolved(path), _resolved(part_of(path) if path.suffix else path)}:
            if place in inputs:
                raise ConfigError(f"the {name} {path} would overwrite {inputs[place]}, which is read", ELSEWHERE)
            if place in taken:
                raise ConfigError(f"the {taken[place]} and the {name} would both be written to {path}", ELSEWHERE)
            taken[place] = name


def check_free_folders(pictures: Sequence[Path], folders: Iterable[Path]) -> None:
    """Raise if one of the folders holds a picture that is read, or the masks of a site.

    Args:
        pictures: Files that are read.
        folders: In which files are written under the names of the pictures.
    """
    read = {_resolved(folder) for folder in {path.parent for path in pictures}}
    for folder in folders:
        if _resolved(folder) in read:
            raise ConfigError(f"{folder} holds pictures that are read, and masks would overwrite them", ELSEWHERE)
        if folder.name == "masks" and is_site(folder.parent):
            raise ConfigError(f"{folder} holds the masks of a site, which would be overwritten", ELSEWHERE)


def is_site(folder: Path) -> bool:
    """Whether a folder holds labelled images, as `rcil` makes and trains on them."""
    return (folder / "images").is_dir() and (folder / "masks").is_dir()


def _resolved(path: Path) -> Path:
    """Without links; a name that no file can have stays as it is."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()
