"""Comparing two files of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rcil.errors import RcilError
from rcil_export.check.artefact import Artefact, EngineArtefact, OnnxArtefact, open_artefact
from rcil_export.check.bisect import bisect as find_layer
from rcil_export.check.bisect import check_same_network
from rcil_export.check.images import common_shape, fit, images_for
from rcil_export.check.limits import limits_for, parse_limits
from rcil_export.check.outputs import compare_outputs
from rcil_export.check.outputs_report import OutputsReport
from rcil_export.check.quantisation import quantisation_result
from rcil_export.check.rebuild import layer_reference
from rcil_export.check.result import Item, Result


def check_files(
    first: Path,
    second: Path,
    *,
    images: Path | None = None,
    limits: str = "",
    most: int = 64,
    bisect: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Result], OutputsReport]:
    """What differs between two artefacts on images, and where it starts.

    Errors in the middle of a network can vanish on the way to its end, so layers are compared too, unless one of the
    two is an engine, whose layers nobody sees.

    Args:
        first: The reference.
        second: What is checked.
        images: A folder; generated images without.
        limits: Changes to the defaults, as text.
        most: Images to use.
        bisect: Also compare layer by layer.
        progress: Told how many of how many images are done.
    """
    changes = parse_limits(limits)
    with open_artefact(first) as a, open_artefact(second) as b:
        chosen = images_for(images, common_shape(a.shape, b.shape), most=most)
        allowed = limits_for(a.precision, b.precision, changes)
        outputs = compare_outputs(a, b, chosen, allowed, progress=progress)
        results = [outputs.as_result()]
        if bisect and not any(isinstance(artefact, EngineArtefact) for artefact in (a, b)):
            results.append(_bisected(a, b, images, allowed.node))
        if isinstance(b, OnnxArtefact) and b.precision == "int8":
            results.append(quantisation_result(a, b, images))
    return results, outputs


def _bisected(a: Artefact, b: Artefact, images: Path | None, tolerance: float) -> Result:
    try:
        check_same_network(a, b)
        a, _ = layer_reference(a, b)
    except RcilError as error:
        item = Item("layers", "Layer by layer", None, error.message, "two forms of one network")
        return Result("bisect", f"Layers of {b.name} against {a.name}", (item,))
    shape = common_shape(a.shape, b.shape)
    image = fit(next(iter(images_for(images, shape, most=1))), shape)
    return find_layer(a, b, image.pixels, tolerance).as_result()
