"""Building a torch module from an import path and arguments, with code of allowed packages only."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from rcil.core.allowed_imports import check_allowed, is_allowed
from rcil.core.errors import ConfigError, MissingDependencyError, RcilError, did_you_mean, first_line
from rcil.model.attached import Args, AttachedArchitecture, Factory

NESTED = {"factory", "args"}
CLASS_ARGS = ("num_classes", "classes", "num_labels")
"""Usual names of the argument that states the number of classes; libraries of models use one of them."""
VISION_OPS = "torchvision::"


def build_module(factory: str, args: Mapping[str, Any]) -> nn.Module:
    """The module that the factory returns for these arguments, in evaluation mode.

    Args:
        factory: `package.module:name`; the package must be allowed.
        args: Keyword arguments; see `rcil.model.attached.Args`.
    """
    made = _call(factory, args)
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"{factory} returns a {type(made).__name__}, not a torch module", "Name a class or function that does."
        )
    _check_kind(made, factory)
    return made.eval()


def _check_kind(made: nn.Module, factory: str) -> None:
    """Raise for modules whose parts cannot be seen or replaced."""
    for name, module in made.named_modules():
        if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
            how = "scripted" if isinstance(module, torch.jit.ScriptModule) else "compiled"
            what = f"the module '{name}' of {factory}" if name else f"the network of {factory}"
            raise ConfigError(
                f"{what} is {how}, so that its convs cannot be replaced", "Name a builder that returns plain modules."
            )
        lazy = [key for key, value in module._parameters.items() if torch.nn.parameter.is_lazy(value)]
        if lazy:
            raise ConfigError(
                f"the module '{name}' of {factory} is a {type(module).__name__} without shapes until it runs",
                "State its input channels in the builder.",
            )


def checked_factory(factory: str, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Both, if they have the form that a file can store."""
    try:
        return TypeAdapter(Factory).validate_python(factory), TypeAdapter(Args).validate_python(dict(args))
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        if "pattern" in message:
            message = f"'{factory}' is not an import path"
        raise ConfigError(message, "Write package.module:name, and arguments as in a JSON file.") from error


def with_classes(arch: AttachedArchitecture, count: int) -> dict[str, Any] | None:
    """The arguments for another number of classes; None if no argument states it."""
    if arch.classes_arg is None:
        return None
    return replaced(arch.args, arch.classes_arg, count)


def replaced(args: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """A copy of nested arguments with one value replaced; entries of lists are named by their index."""
    first, *rest = path
    return {**args, first: _replaced_in(args.get(first), rest, value)}


def _replaced_in(found: Any, path: list[str], value: object) -> Any:
    if not path:
        return value
    first, *rest = path
    if isinstance(found, list):
        index = int(first)
        return [*found[:index], _replaced_in(found[index], rest, value), *found[index + 1 :]]
    return {**found, first: _replaced_in(found.get(first), rest, value)}


def default_args(factory: str, args: Mapping[str, Any], classes: int) -> Iterator[tuple[str, ...]]:
    """Arguments that were not given and may state this number of classes by default, also those of nested factories.

    They are those with this default, and the usual names, which a signature may hide.
    """
    for key, value in args.items():
        if isinstance(value, dict) and value.keys() == NESTED:
            yield from ((key, "args", *path) for path in default_args(value["factory"], value["args"], classes))
    with contextlib.suppress(ValueError, TypeError):  # without a signature
        for name, parameter in inspect.signature(_resolve(factory)).parameters.items():
            if type(parameter.default) is int and parameter.default == classes and name not in args:
                yield (name,)
    yield from ((name,) for name in CLASS_ARGS if name not in args)


def _call(factory: str, args: Mapping[str, Any]) -> object:
    factory, args = checked_factory(factory, args)
    make = _resolve(factory)
    values = {key: _built(value) for key, value in args.items()}
    try:
        return make(**values)
    except RcilError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{factory} cannot be built: {type(error).__name__}: {first_line(error)}",
            "Check the arguments (args) and the installed version of the package.",
        ) from error


def _built(value: object) -> object:
    """An argument; a dictionary that describes a factory becomes what that returns."""
    if isinstance(value, dict) and value.keys() == NESTED:
        return _call(value["factory"], value["args"])
    return value


def _resolve(factory: str) -> Callable[..., object]:
    """The class or function that an import path names; it must be defined in an allowed package too.

    The second condition keeps a file from calling what a package merely imports, such as `os.system`.
    """
    module_name, _, name = factory.partition(":")
    check_allowed(module_name, factory)
    found = import_name(module_name, name)
    if found is None:
        public = [key for key in dir(sys.modules[module_name]) if not key.startswith("_")]
        raise ConfigError(f"{module_name} has no '{name}'", did_you_mean(name, public) if len(public) < 50 else "")
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        raise ConfigError(f"{factory} is neither a class nor a function", "Name one that returns a torch module.")
    if not is_allowed(found.__module__):
        raise ConfigError(
            f"{factory} is defined in {found.__module__}, which is not allowed", "Name it where it is defined."
        )
    return cast("Callable[..., object]", found)


def import_name(module: str, name: str | None = None) -> Any:
    """A module, or what it calls `name`; None if it has no such name.

    torchvision built for another torch has no compiled operators, and its import fails at registering their shapes. No
    segmentation network needs them, so the import is repeated without these registrations.
    """
    try:
        return _import(module, name)
    except (Exception, SystemExit) as error:
        if not any(VISION_OPS in str(cause) for cause in _causes(error)):
            raise _unimportable(module, error) from error
    for loaded in [key for key in sys.modules if key.partition(".")[0] in ("torchvision", module.partition(".")[0])]:
        del sys.modules[loaded]
    try:
        with _without_vision_ops():
            importlib.import_module("torchvision")
        return _import(module, name)
    except (Exception, SystemExit) as error:
        raise _unimportable(module, error) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that led to it; packages that import lazily hide the first one."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _import(module: str, name: str | None) -> Any:
    found = importlib.import_module(module)
    return found if name is None else getattr(found, name, None)  # some packages import on access


def _unimportable(name: str, error: BaseException) -> RcilError:
    package = name.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return MissingDependencyError(f"the package '{package}' is not installed", "Install it, then try again.")
    return ConfigError(f"cannot import {name}: {type(error).__name__}: {first_line(error)}", "Check the import path.")


@contextlib.contextmanager
def _without_vision_ops() -> Iterator[None]:
    """Skip the registration of shapes for operators of torchvision."""
    register = torch.library.register_fake

    def skip(op: object, *args: Any, **kwargs: Any) -> Any:
        if isinstance(op, str) and op.startswith(VISION_OPS):
            return lambda function: function
        return register(op, *args, **kwargs)  # type: ignore[arg-type]

    torch.library.register_fake = skip
    try:
        yield
    finally:
        torch.library.register_fake = register
