"""The settings of the paper's tables as task files: `rcil train voc-15-1-overlapped --set data.root=...` runs one.

Each file is complete, so that it can be copied and edited. They start from ImageNet weights in the file that
`network.pretrained` names. The folder `classify` has those of `rcil classify`.
"""

from __future__ import annotations

from importlib import resources

from rcil.core.errors import ConfigError, did_you_mean

_SUFFIX = ".yaml"


def preset_names(folder: str = ".") -> list[str]:
    """The names of the presets in a folder, sorted: by default those of `rcil train`."""
    files = (entry.name for entry in (resources.files(__name__) / folder).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def preset_text(name: str, folder: str = ".") -> str:
    """The YAML of a preset; unknown names get a suggestion."""
    known = preset_names(folder)
    if name not in known:
        raise ConfigError(f"unknown preset '{name}'", did_you_mean(name, known))
    return (resources.files(__name__) / folder / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
