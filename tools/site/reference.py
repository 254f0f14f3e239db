"""One page for each package with every public name, which mkdocstrings fills from signatures and docstrings."""

from __future__ import annotations

from importlib import import_module

PACKAGES = ("rcil", "rcil_export", "rcil_serve")


def package_page(name: str) -> str:
    """All names in `__all__`, functions first."""
    package = import_module(name)
    names = sorted(package.__all__, key=lambda one: (one[0].isupper(), one))
    parts = [f"# {name}", package.__doc__ or "", *(f"::: {name}.{one}" for one in names)]
    return "\n\n".join(parts) + "\n"
