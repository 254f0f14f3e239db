"""Checks that outputs overwrite neither inputs nor each other, before anything is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rcil.core.errors import ConfigError
from rcil_serve.stream.outputs.growing_file import part_of
from rcil_serve.stream.sources.open import local_files

HINT = "Choose another path for it."


def check_no_overwrite(source: str, models: Iterable[Path], outputs: Mapping[str, Path]) -> None:
    """Raise if writing would destroy an input or another output.

    Args:
        source: The source as the user typed it.
        models: Model files that are read.
        outputs: Files to write, by name; their temporary names are checked too.
    """
    inputs = {_resolved(path): path for path in (*local_files(source), *models)}
    taken: dict[Path, str] = {}
    for name, path in outputs.items():
        for target in {_resolved(path), _resolved(part_of(path) if path.suffix else path)}:
            if target in inputs:
                raise ConfigError(f"the {name} {path} would overwrite {inputs[target]}, which is an input", HINT)
            if target in taken:
                raise ConfigError(f"the {taken[target]} and the {name} would both be written to {path}", HINT)
            taken[target] = name


def check_free_folders(pictures: Sequence[Path], folders: Iterable[Path]) -> None:
    """Raise if an output folder holds input images, or the masks of a site.

    Args:
        pictures: Image files that are read.
        folders: Folders in which files named after the images are written.
    """
    read = {_resolved(folder) for folder in {path.parent for path in pictures}}
    for folder in folders:
        if _resolved(folder) in read:
            raise ConfigError(f"{folder} holds input images, which the outputs would overwrite", HINT)
        if folder.name == "masks" and is_site(folder.parent):
            raise ConfigError(f"{folder} holds the masks of a site, which would be overwritten", HINT)


def is_site(folder: Path) -> bool:
    """Whether a folder is a site folder with labelled images."""
    return (folder / "images").is_dir() and (folder / "masks").is_dir()


def _resolved(path: Path) -> Path:
    """Resolve symbolic links. A name that cannot be resolved is returned as an absolute path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()
