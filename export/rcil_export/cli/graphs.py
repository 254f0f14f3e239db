"""The commands about ONNX files: adopting one of another program, and labelling images with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rcil import defaults
from rcil.cli.completion import files, one_of
from rcil.cli.console import print_json, progress_line
from rcil.cli.labelling import MinConfidence, NewSiteOption, Overlays, Unlabelled, print_labelled
from rcil_export.cli import options as o

Triple = Annotated[
    str, typer.Option(metavar="A,B,C", help="Of the colour channels, as shares of 255. [default: ImageNet's]")
]


def adopt(
    graph: Annotated[
        Path, typer.Argument(metavar="ONNX", help="An ONNX file of another program.", autocompletion=files(".onnx"))
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file to write.")],
    names: Annotated[
        str,
        typer.Option(
            help="Class names: 'voc', 'cityscapes' or a text file with one name per line, background first.",
            autocompletion=one_of("voc", "cityscapes"),
        ),
    ],
    size: o.Size = None,
    mean: Triple = "",
    std: Triple = "",
    colours: Annotated[
        Literal["RGB", "BGR"], typer.Option("--colour-order", help="Order of the channels that the graph reads.")
    ] = "RGB",
    logits: Annotated[str, typer.Option(help="Output with one channel per class. [default: the first that fits]")] = "",
    as_json: o.AsJson = False,
) -> None:
    """Make an ONNX file of another program readable for rcil-serve, rcil-export check and rcil-export prelabel.

    The graph must take one float image [N, 3, H, W] and give a score for every class and pixel. The file that is
    written takes images as they are and gives mask and confidence; it cannot be trained or folded.

    Example: `rcil-export adopt theirs.onnx -o model.onnx --names names.txt --size 512x512`
    """
    from rcil.cli.networks import parse_triple
    from rcil.data.class_names import read_names
    from rcil_export.adopt import GraphInput
    from rcil_export.adopt import adopt as run
    from rcil_export.graph.shapes import parse_size

    given = GraphInput(
        names=read_names(names),
        size=None if size is None else parse_size(size),
        mean=parse_triple(mean, "--mean") or GraphInput.mean,
        std=parse_triple(std, "--std") or GraphInput.std,
        colour_order=colours,
        logits=logits or None,
    )
    metadata = run(graph, output, given)
    if as_json:
        print_json(metadata.model_dump(mode="json"))
        return
    typer.echo(f"{output}: {graph.name}, {len(metadata.classes)} classes")


def prelabel(
    model: Annotated[
        Path,
        typer.Option("--from", help="An exported model, ONNX or engine.", autocompletion=files(".onnx", ".engine")),
    ],
    images: Unlabelled,
    output: NewSiteOption,
    min_confidence: MinConfidence = defaults.MIN_CONFIDENCE,
    overlays: Overlays = False,
    as_json: o.AsJson = False,
) -> None:
    """Label images with an exported model, as a site folder that `rcil train` reads.

    `rcil prelabel` does the same with a checkpoint. An adopted graph becomes the teacher of one of our networks in this
    way: label images of your site, then train on them.

    Example: `rcil-export prelabel --from model.onnx --images photos -o my_site`
    """
    from rcil.labelling.prelabel import prelabel as run
    from rcil_export.checks.artefact import open_artefact
    from rcil_export.labeller import ArtefactLabeller

    with open_artefact(model) as artefact, progress_line("labelling") as progress:
        document = run(
            model,
            images,
            output,
            min_confidence=min_confidence,
            overlays=overlays,
            device="cpu",
            labeller=ArtefactLabeller(artefact),
            progress=progress,
        )
    if as_json:
        print_json(document)
    else:
        print_labelled(output, document)
