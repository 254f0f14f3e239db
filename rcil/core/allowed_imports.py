"""The packages whose code may be run to build a network that a file names; none by default."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from rcil.core.errors import ConfigError

_ALLOWED: ContextVar[frozenset[str]] = ContextVar("allowed", default=frozenset())


def allow_imports(packages: Iterable[str]) -> None:
    """Allow these packages from now on, in this process."""
    _ALLOWED.set(_ALLOWED.get() | _checked(packages))


@contextlib.contextmanager
def allowing(packages: Iterable[str]) -> Iterator[None]:
    """Allow these packages, beside those that are allowed already, within the block."""
    token = _ALLOWED.set(_ALLOWED.get() | _checked(packages))
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def is_allowed(module: str) -> bool:
    """Whether a module, by its full name, belongs to an allowed package."""
    return any(module == name or module.startswith(f"{name}.") for name in _ALLOWED.get())


def check_allowed(module: str, what: str) -> None:
    """Raise unless `module` belongs to an allowed package; `what` needs it."""
    if not is_allowed(module):
        package = module.partition(".")[0]
        raise ConfigError(
            f"{what} is built with code of the package '{package}', which is not allowed",
            f"If you trust this package and the file, add --allow-import {package}, or allow=['{package}'] in Python.",
        )


def _checked(packages: Iterable[str]) -> frozenset[str]:
    if isinstance(packages, str):
        packages = [packages]
    names = frozenset(packages)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"'{name}' is not the name of a package", "Write for example torchvision.")
    return names
