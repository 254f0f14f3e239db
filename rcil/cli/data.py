"""The `rcil data` commands: check, show, convert, export and generate images with masks."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rcil import defaults
from rcil.cli.completion import one_of
from rcil.cli.console import print_dry_run, print_json, progress_line
from rcil.cli.labelling import SOURCES, LabellingTool, print_next_steps
from rcil.cli.options import AsJson, DryRunFlag, MaxImages, NewSite, SiteArgument

if TYPE_CHECKING:
    from rcil.data.check import CheckReport

app = typer.Typer(
    name="data", help="Check, show, convert, export and generate images with masks.", no_args_is_help=True
)


@app.command()
def check(
    folder: SiteArgument,
    sheet: Annotated[
        Path | None, typer.Option(help="Contact sheet to write (default: FOLDER/contact_sheet.png).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a site folder for unreadable files, wrong sizes, unknown ids, missing pairs and rare classes.

    The exit code is 6 if there are errors; warnings do not count. Also draws a contact sheet of the valid images.

    Example: `rcil data check my_site`
    """
    from rcil.cli.tables import print_check
    from rcil.data.check import check_site

    with progress_line("checking") as progress:
        report = check_site(folder, progress)
    drawn = _draw_sheet(report, sheet) if report.good else None
    if as_json:
        print_json({**report.as_document(), "contact_sheet": None if drawn is None else str(drawn)})
    else:
        print_check(report, drawn)
    if not report.ok:
        raise typer.Exit(6)


def _draw_sheet(report: CheckReport, asked: Path | None) -> Path | None:
    """Write the contact sheet. Returns None if it was not asked for and the site folder is not writable."""
    from rcil.core.errors import RcilError
    from rcil.core.images import write_image
    from rcil.core.log import log
    from rcil.data.check import contact_sheet
    from rcil.data.types import SegmentationData

    sheet = asked or report.root / "contact_sheet.png"
    try:
        write_image(sheet, contact_sheet(SegmentationData(report.root, report.classes, {}), report.good))
    except RcilError as error:
        if asked is not None:
            raise
        log.warning("no contact sheet: %s", error.message)
        return None
    return sheet


@app.command()
def show(
    folder: SiteArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the overlays.")],
    split: Annotated[str, typer.Option(help="Show only this split.")] = "",
    most: MaxImages = 50,
    as_json: AsJson = False,
) -> None:
    """Draw the masks over their images: one PNG per image, one folder per split.

    Example: `rcil data show my_site -o overlays --split train`
    """
    from rcil.core.errors import ConfigError, did_you_mean
    from rcil.core.images import write_image
    from rcil.data.check import draw_sample
    from rcil.data.site import read_site

    data = read_site(folder, record=False)
    if split and split not in data.splits:
        raise ConfigError(f"{folder} has no split '{split}'", did_you_mean(split, data.splits))
    samples = [(name, s) for name, group in data.splits.items() if split in ("", name) for s in group][:most]
    drawn = [output / name / f"{sample.name}.png" for name, sample in samples]
    with progress_line("drawing") as progress:
        for index, (path, (_, sample)) in enumerate(zip(drawn, samples, strict=True), 1):
            write_image(path, draw_sample(data, sample))
            progress(index, len(drawn))
    if as_json:
        print_json({"overlays": [str(path) for path in drawn]})
    else:
        typer.echo(f"{len(samples)} overlays in {output}")


@app.command()
def convert(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"{', '.join(SOURCES[:-1])} or {SOURCES[-1]}. It may be omitted.",
            autocompletion=one_of(*SOURCES, "auto"),
        ),
    ],
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="The export: a folder, a ZIP or an annotation file.")
    ],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="TARGET", help="The site folder to create; must not exist or must be empty."),
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Folder with the images, if the export has none.")] = None,
    split: Annotated[str | None, typer.Option(help="Split for exports that record none.")] = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Convert an annotation export into a site folder.

    With two arguments, SOURCE and TARGET, or with the format 'auto', the format is recognised by the files.

    Formats: cvat (CVAT for images 1.1, Segmentation mask 1.1), coco (polygons and run lengths), label-studio (JSON:
    brush, polygons), labelme, roboflow (semantic masks), via (2.x, JSON or CSV) and yolo (segmentation).

    Example: `rcil data convert coco annotations.json my_site --images photos`

    Example: `rcil data convert cvat_export.zip my_site`
    """
    from rcil.core.errors import ConfigError
    from rcil.data.converters import AUTO
    from rcil.data.converters import convert as run
    from rcil.data.converters import dry_run as dry

    if target is None:  # the format is optional, although it comes first
        if kind in (*SOURCES, AUTO) and not Path(kind).exists():
            raise ConfigError(
                "the site folder to create is missing", f"Write: rcil data convert {kind} {source} TARGET"
            )
        kind, source, target = AUTO, Path(kind), source
    if dry_run:
        print_dry_run(dry(kind, source, target, images=images, split=split), as_json=as_json)
        return
    with progress_line(f"converting {source}"):
        summary = run(kind, source, target, images=images, split=split)
    if as_json:
        print_json({**asdict(summary), "target": str(target)})
        return
    counts = ", ".join(f"{number} {name}" for name, number in summary.images.items())
    typer.echo(
        f"{target}: {len(summary.classes)} classes, images: {counts}; {summary.background_only} without annotations"
    )
    for what, count in summary.skipped.items():
        typer.echo(f"skipped: {count} {what}")
    typer.echo(f"next: {shlex.join(['rcil', 'data', 'check', str(target)])}")


@app.command()
def export(
    folder: SiteArgument,
    target: Annotated[Path, typer.Argument(help="The folder to create; must not exist or must be empty.")],
    kind: LabellingTool,
    polygons: Annotated[
        bool, typer.Option("--polygons", help="Write outlines instead of masks; holes become further outlines.")
    ] = False,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Write the images and masks of a site folder for a labelling tool; `rcil data convert` reads them back unchanged.

    Formats: cvat (CVAT for images 1.1), cvat-masks (Segmentation mask 1.1), coco, labelme and label-studio. Ignored
    pixels have the label 'ignore'.

    Example: `rcil data export my_site for_cvat --to cvat`

    Example: `rcil data export my_site for_labelme --to labelme --polygons`
    """
    from rcil.data.exporters import dry_run as dry
    from rcil.data.exporters import export_site

    if dry_run:
        print_dry_run(dry(folder, target, kind, polygons=polygons), as_json=as_json)
        return
    with progress_line("exporting") as progress:
        summary = export_site(folder, target, kind, polygons=polygons, progress=progress)
    if as_json:
        print_json({**asdict(summary), "target": str(target)})
        return
    counts = ", ".join(f"{number} {name}" for name, number in summary.images.items())
    typer.echo(f"{target}: {len(summary.labels)} labels, images: {counts}")
    print_next_steps(target, kind)


@app.command("make-site")
def make_site_command(
    target: NewSite,
    count: Annotated[
        int, typer.Option(min=5, help="Total number of images: 3/5 train, 1/5 val, 1/5 test.")
    ] = defaults.IMAGES,
    size: Annotated[str, typer.Option(help="Image size as HEIGHTxWIDTH, both even.")] = "{}x{}".format(
        *defaults.IMAGE_SIZE
    ),
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same pixels.")] = defaults.SEED,
    frames: Annotated[
        int, typer.Option(min=0, help="Length of the video clip in frames; 0 for no clip.")
    ] = defaults.FRAMES,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS", help="Label nothing but this class in the split train, and leave out images without it."
        ),
    ] = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Generate a site: images of a yard in five weather and camera conditions, with masks and a video clip.

    Example: `rcil data make-site yard --count 100`

    Example: `rcil data make-site yard --only vehicle`
    """
    from rcil.core.errors import ConfigError
    from rcil.scenes import make_site
    from rcil.scenes.site import dry_run as dry

    parts = size.split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"'{size}' is not a size", "Write HEIGHTxWIDTH, for example 240x320.")
    shape = int(parts[0]), int(parts[1])
    if dry_run:
        print_dry_run(dry(target, seed=seed, images=count, size=shape, frames=frames, only=only), as_json=as_json)
        return
    with progress_line(f"generating {target}"):
        summary = make_site(target, seed=seed, images=count, size=shape, frames=frames, only=only)
    if as_json:
        print_json({**asdict(summary), "root": str(target)})
        return
    counts = ", ".join(f"{number} {split}" for split, number in summary.splits.items())
    typer.echo(f"{target}: {len(summary.classes)} classes, images: {counts}; clip of {summary.frames} frames")
