"""The command `rcil attach`: networks of other libraries."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rcil.cli.completion import files, one_of
from rcil.cli.console import make_notifier, print_json
from rcil.cli.options import AsJson
from rcil.core.documents import comma_separated
from rcil.core.errors import ConfigError, RunError

FactoryPath = Annotated[
    str, typer.Argument(metavar="FACTORY", help="Import path of a builder, package.module:name. Its code is run.")
]
FactoryArgs = Annotated[
    str, typer.Option("--args", metavar="JSON", help="Arguments of the factory, for example '{\"num_classes\": 4}'.")
]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="Weights of the network: a state dict or safetensors. [default: those that the factory gives it]",
        autocompletion=files(".pth", ".pt", ".safetensors"),
    ),
]
ClassNames = Annotated[
    str,
    typer.Option(
        help="Class names: 'voc', 'cityscapes' or a text file with one name per line. [default: class_1...]",
        autocompletion=one_of("voc", "cityscapes"),
    ),
]
Triple = Annotated[
    str, typer.Option(metavar="R,G,B", help="Of the colour channels, as shares of 255. [default: ImageNet's]")
]


def attach(
    factory: FactoryPath,
    args: FactoryArgs = "{}",
    check: Annotated[
        bool, typer.Option("--check", help="Train, fold and export the network once, and print what works.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The checkpoint to write; not with --check.")
    ] = None,
    weights: Weights = None,
    names: ClassNames = "",
    mean: Triple = "",
    std: Triple = "",
    classifier: Annotated[
        str, typer.Option(help="Name of the conv with one row per class; several with commas. [default: found]")
    ] = "",
    maps: Annotated[
        str, typer.Option(help="Names of the modules whose maps are distilled, with commas. [default: found]")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a network of another library ready for `rcil add-class`, or check what works with it.

    Naming the factory allows its package. Other commands need --allow-import PACKAGE for a checkpoint of the network.

    --check builds the network with random weights, attaches it, trains two short steps, folds and exports it, and
    prints a row: network, pairs of conv and norm, parameters, fold error, certificate, export route. The exit code is 5
    if something fails.

    Examples:
        rcil attach --check torchvision.models.segmentation:fcn_resnet50 --args '{"num_classes": 4}'

        rcil attach my_package:build --args '{"classes": 4}' --weights w.pth --names names.txt -o model.safetensors
    """
    if check == (output is not None):
        raise ConfigError("give either --check or an output file", "Add --check, or -o model.safetensors.")
    arguments = parse_args(args)
    if check:
        unread = {"--weights": weights, "--names": names, "--mean": mean, "--std": std}
        if given := [option for option, value in unread.items() if value]:
            raise ConfigError(f"--check does not read {given[0]}", "It uses random weights. Leave the option out.")
        _check(factory, arguments, comma_separated(classifier), comma_separated(maps), as_json=as_json)
        return
    assert output is not None
    metadata = attach_file(factory, arguments, output, weights, names, (mean, std), classifier, maps)
    if as_json:
        from rcil.model.header import read_header

        print_json(read_header(output).as_document(output))
        return
    units = metadata.architecture.units
    typer.echo(f"{output}: {metadata.architecture.backbone}, {len(metadata.classes)} classes")
    typer.echo(f"  convs with a norm    {sum(unit.norm is not None for unit in units)}")
    typer.echo(f"  convs with branches  {sum(unit.rc for unit in units)}")
    typer.echo(f"  classifier           {', '.join(metadata.architecture.classifier)}")
    if metadata.architecture.output is not None:
        typer.echo(f"  output               {metadata.architecture.output}")
    typer.echo(f"  distilled maps       {', '.join(metadata.architecture.maps)}")


def attach_file(
    factory: str,
    args: dict[str, Any],
    output: Path,
    weights: Path | None,
    names: str,
    colours: tuple[str, str] = ("", ""),
    classifier: str = "",
    maps: str = "",
) -> Any:
    """Attach a network and write its checkpoint; returns the stored metadata."""
    from rcil.attaching.model import attach_model, default_names_of
    from rcil.checkpoint.file import save
    from rcil.data.class_names import read_names
    from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD

    model = attach_model(
        factory,
        args,
        classes=read_names(names) if names else default_names_of(factory, args, comma_separated(classifier)),
        weights=weights,
        mean=parse_triple(colours[0], "--mean") or IMAGENET_MEAN,
        std=parse_triple(colours[1], "--std") or IMAGENET_STD,
        classifier=comma_separated(classifier) or None,
        maps=comma_separated(maps) or None,
    )
    return save(output, model.network, model.metadata)


def _check(
    factory: str, args: dict[str, Any], classifier: Sequence[str], maps: Sequence[str], *, as_json: bool
) -> None:
    from dataclasses import asdict

    from rcil.attaching.check import check_network

    with contextlib.redirect_stdout(sys.stderr):  # a network may print something itself
        found = check_network(
            factory, args, classifier=classifier or None, maps=maps or None, say=make_notifier(as_json=as_json)
        )
    row = found.row()
    if as_json:
        print_json({**asdict(found), "ok": found.ok})
    else:
        typer.echo(f"| {' | '.join(row)} |")
        typer.echo(f"|{'---|' * len(row)}")
        typer.echo(f"| {' | '.join(row.values())} |")
    if not found.ok:
        raise RunError(f"{factory}: {'; '.join(found.problems)}", "See docs/networks.md for what is supported.")


def parse_args(text: str) -> dict[str, Any]:
    """The arguments of a factory from JSON."""
    try:
        args = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--args is not JSON: {error}", "Write for example --args '{\"num_classes\": 4}'.") from error
    if not isinstance(args, dict):
        raise ConfigError("--args is not a JSON object", "Write for example --args '{\"num_classes\": 4}'.")
    return args


def parse_triple(text: str, option: str) -> tuple[float, ...]:
    """Three numbers with commas; none for an empty text."""
    try:
        values = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise ConfigError(f"{option} {text} is not a list of numbers", "Write for example 0.5,0.5,0.5.") from error
    if values and len(values) != 3:
        raise ConfigError(f"{option} has {len(values)} numbers, not 3", "Write for example 0.5,0.5,0.5.")
    return values
