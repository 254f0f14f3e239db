"""Models of other libraries: attach a network, with its weights and its description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from rcil import __version__
from rcil.checkpoint.file import check_tensors
from rcil.checkpoint.importers.torch_file import read_tensors
from rcil.core.allowed_imports import allow_imports
from rcil.core.errors import CheckpointError, ConfigError
from rcil.core.files import sha256_of
from rcil.inference import Model
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD, LineageEntry, Metadata, class_table
from rcil.nn.attached.attach import attach_network, default_names
from rcil.nn.attached.builders import build_module

WRAPPER = "module."
AGAIN = "Give the weights of the network that the factory builds with these arguments."


def attach_model(
    network: str | nn.Module,
    args: Mapping[str, Any],
    *,
    classes: Sequence[str],
    weights: Path | None = None,
    factory: str | None = None,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    classifier: str | Sequence[str] | None = None,
    maps: Sequence[str] | None = None,
) -> Model:
    """See `rcil.attach`."""
    if isinstance(network, nn.Module):
        if factory is None:
            raise ConfigError(
                "a checkpoint stores how to build the network, and no factory is named",
                "Add factory='package.module:name' and args={...}.",
            )
        net = network
    elif factory is not None:
        raise ConfigError("the factory is given twice", "Name it once.")
    else:
        factory = network
    allow_imports([factory.partition(":")[0].partition(".")[0]])
    built = build_module(factory, args)
    if isinstance(network, nn.Module):
        _check_same(built, net, factory)
    else:
        net = built
    if weights is not None:
        load_weights(net, weights)
    attached = attach_network(net, factory, args, classes, classifier=classifier, maps=maps)
    entry = LineageEntry(
        step=0,
        source=f"attach, {factory}",
        parent_sha256=None if weights is None else sha256_of(weights),
        versions={"rcil": __version__, "torch": torch.__version__},
    )
    try:
        metadata = Metadata(
            architecture=attached.arch,
            classes=class_table([list(classes)]),
            mean=mean,  # type: ignore[arg-type]
            std=std,  # type: ignore[arg-type]
            lineage=(entry,),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", "Correct the value.") from error
    return Model(attached, metadata)


def default_names_of(factory: str, args: Mapping[str, Any], classifier: Sequence[str] | None = None) -> list[str]:
    """Names for every output channel of the network that a factory builds."""
    allow_imports([factory.partition(":")[0].partition(".")[0]])
    return default_names(build_module(factory, args), classifier)


def load_weights(net: nn.Module, path: Path) -> None:
    """Load a weight file into a module, all tensors by their names; code in the file is never run."""
    own = net.state_dict()
    tensors = renamed(read_tensors(path), own, path)
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    tensors = {**{key: value for key, value in counters.items() if key not in tensors}, **tensors}
    check_tensors(own, tensors, path, AGAIN)
    net.load_state_dict(tensors)


def renamed(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file under the names of a network.

    Training programs put the network into a module of theirs, so that all of its names begin with the name of an
    attribute; a `module.` of data-parallel wrappers may be there or missing on either side.

    Raises:
        CheckpointError: The file has the network several times.
    """
    needed = [key for key in own if not key.endswith("num_batches_tracked")]
    if not needed or all(key in tensors for key in needed):
        return tensors
    wrapped = all(key.startswith(WRAPPER) for key in own)
    short = {key.removeprefix(WRAPPER) if wrapped else key: key for key in own}
    first = needed[0].removeprefix(WRAPPER) if wrapped else needed[0]
    prefixes = [key.removesuffix(first) for key in tensors if key == first or key.endswith(f".{first}")]
    found = [prefix for prefix in prefixes if all(f"{prefix}{key}" in tensors for key in short if short[key] in needed)]
    if len(found) > 1:
        raise CheckpointError(
            f"{path} holds the network {len(found)} times, under {' and '.join(map(repr, found))}",
            "Save one of them to a file of its own.",
        )
    if not found:
        return tensors
    return {own_key: tensors[found[0] + key] for key, own_key in short.items() if found[0] + key in tensors}


def _check_same(built: nn.Module, given: nn.Module, factory: str) -> None:
    """Raise unless a module has the tensors of the one that the factory builds."""
    if type(built) is not type(given):
        raise ConfigError(
            f"{factory} builds a {type(built).__name__}, and the network is a {type(given).__name__}",
            "Name the factory and arguments that the network was built with.",
        )
    try:
        check_tensors(built.state_dict(), given.state_dict(), Path("the network"))
    except CheckpointError as error:
        raise ConfigError(
            f"{error.message} that {factory} builds", "Name the arguments that the network was built with."
        ) from error
