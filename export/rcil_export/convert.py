"""From a network to an ONNX graph of the requested precision, judged by the checks where that is int8."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import onnx

from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import sha256_of
from rcil.core.log import Notify
from rcil.model.metadata import LineageEntry, Metadata
from rcil.nn import Network, fold
from rcil.nn.attached.network import AttachedNetwork
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact
from rcil_export.checks.limits import Limits, limits_for
from rcil_export.checks.outputs.criterion import Criterion
from rcil_export.graph.dynamo import check_interface
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.graph.onnx_file import description_of
from rcil_export.precision.feeds import Feeds, ImageSplit, find_feeds, recorded_images, split_images
from rcil_export.precision.half import half_within
from rcil_export.precision.int8.cpu import in_form
from rcil_export.precision.int8.quantise import Quantised, quantise
from rcil_export.precision.int8.quantise import calibrate as calibrate_int8
from rcil_export.precision.int8.risk import risk_table
from rcil_export.precision.int8.search import Judgement, SearchResult, layer_errors, search
from rcil_export.precision.int8.weights import has_vnni
from rcil_export.precision.ranges import measure_ranges
from rcil_export.precision.record import CalibrationOptions, ConversionRecord, Form, WeightBits, package_versions
from rcil_export.precision.replay import AGREEMENT_BATCHES, Converted, recorded

Vnni = Literal["auto", "yes", "no"]
MAX_HALF_IMAGES = 16
"""Number of images to measure fp16 on; bf16 is only compared. `split_images` has the numbers of int8."""
MAX_RISKS = 8
LEFT_OUT = "in int8 it costs more than the limits allow"


class PrecisionError(RcilError):
    """A precision that costs more than the user allows."""

    exit_code = 5


def deployed_metadata(metadata: Metadata, source: Path) -> Metadata:
    """The metadata of the deployed form of the checkpoint `source`."""
    entry = LineageEntry(step=metadata.step, source="export", parent_sha256=sha256_of(source))
    arch = metadata.architecture.replace(rc=None, folded=True, norm="batch")
    return metadata.model_copy(update={"architecture": arch, "lineage": (*metadata.lineage, entry), "cost": None})


def convert(
    model: Network,
    metadata: Metadata,
    interface: Interface,
    *,
    calibrate: Path | None = None,
    images: Path | None = None,
    limits: Limits | None = None,
    calibration: CalibrationOptions | None = None,
    vnni: Vnni = "auto",
    say: Notify = lambda text: None,
) -> Converted:
    """Fold a network, write it as ONNX and convert it to `interface.precision`.

    Args:
        model: A network of any form, in evaluation mode.
        metadata: Is stored in the graph.
        interface: Inputs, outputs and precision of the graph.
        calibrate: Images of the site, for every precision but fp32; None: generated images.
        images: Images to judge int8 on; None: a part of `calibrate`.
        limits: What int8 may lose there; None: the defaults.
        calibration: How int8 chooses ranges.
        vnni: Whether the CPU that will run an int8 graph has VNNI; `auto`: like this machine.
        say: Receives notices for the user.
    """
    if isinstance(model, AttachedNetwork):
        check_interface(model, interface)
    exact = interface.model_copy(update={"precision": "fp32"})
    document = to_onnx(model if model.arch.folded else fold(model)[0], metadata, exact)
    if interface.precision == "fp32":
        return Converted(document)
    if calibrate is None:
        say("No --calibrate folder: the graph is measured on generated images, which say little about a site.")
    if interface.precision == "int8":
        return convert_int8(
            model,
            document,
            split_images(calibrate, images, metadata, interface),
            limits or limits_for("fp32", "int8"),
            calibration or CalibrationOptions(),
            vnni,
            say,
        )
    feeds = find_feeds(calibrate, metadata, interface, limit=MAX_HALF_IMAGES)
    return _convert_half(document, interface, feeds, say)


def _convert_half(document: onnx.ModelProto, interface: Interface, feeds: Feeds, say: Notify) -> Converted:
    kind = interface.precision
    assert kind in ("fp16", "bf16")
    ranges = measure_ranges(document, feeds) if kind == "fp16" else None
    compared = feeds.first(AGREEMENT_BATCHES)
    half = half_within(
        document, kind, compared, ranges, progress=lambda what, share: say(f"{kind}, {what}: {share:.3%} same class")
    )
    record = ConversionRecord(
        precision=kind,
        kept_fp32=half.kept,
        magnitudes={} if ranges is None else ranges.values,
        sums={} if ranges is None else ranges.accumulated,
        images=recorded_images(feeds),
        versions=package_versions(),
    )
    seen = feeds.count if ranges is not None else min(feeds.count, sum(len(feed[INPUT_NAME]) for feed in compared))
    notes = {"agreement": half.agreement, "goal_reached": half.reached, "kept_fp32": half.kept, "calibrated_on": seen}
    return recorded(half.document, record, notes)


def check_vnni(vnni: Vnni | None, interface: Interface) -> Vnni:
    """The value of --vnni, `auto` by default; raises if the graph is not an int8 graph for CPUs."""
    if vnni is not None and (interface.precision != "int8" or interface.runtime != "cpu"):
        form = interface.precision if interface.precision != "int8" else f"int8 for {interface.runtime}"
        raise ConfigError(
            f"--vnni is for int8 graphs for CPUs, and this one is {form}",
            "Leave out --vnni, or choose --precision int8 and the form for CPUs (--for cpu).",
        )
    return vnni or "auto"


def weight_bits_for(form: Form, vnni: Vnni) -> WeightBits:
    """8 bits, except on CPUs without VNNI, whose 16-bit sums would overflow."""
    return 8 if form == "qdq" or vnni == "yes" or (vnni == "auto" and has_vnni()) else 7


def convert_int8(
    model: Network,
    document: onnx.ModelProto,
    images: ImageSplit,
    limits: Limits,
    options: CalibrationOptions,
    vnni: Vnni,
    say: Notify,
) -> Converted:
    """Quantise `document`, leaving out the convs whose rounding costs more than the user allows.

    Args:
        model: The network before folding; the reference, and the source of the risk table.
        document: Its graph in fp32.
        images: Images to calibrate on and to judge on.
        limits: What may be lost; the final check has the same limits.
        options: How ranges are chosen.
        vnni: Whether the CPU that will run the graph has VNNI, which decides on the bits of the weights.
        say: Receives notices for the user.
    """
    risks = risk_table(model)
    say("layers that folding made harder to quantise, the worst first:")
    for risk in risks[:MAX_RISKS]:
        say(f"  {risk.score:6.2f}  {risk.name}  (range x {risk.growth:.2f}, spread {risk.spread:.1f})")
    form: Form = "cpu" if description_of(document).interface.runtime == "cpu" else "qdq"
    bits = weight_bits_for(form, vnni)
    say(f"{bits}-bit weights" + (f", VNNI: {vnni}" if form == "cpu" else ""))
    say(images.note)
    ranges = calibrate_int8(document, images.feeds, options)
    found = _search_convs(model, quantise(document, ranges, bits), form, images, limits, say)
    if not found.reached:
        raise _not_reached(found, limits, bits)
    record = ConversionRecord(
        precision="int8",
        kept_fp32=dict.fromkeys(found.best.excluded, LEFT_OUT),
        form=form,
        weight_bits=bits,
        calibration=options,
        ranges=ranges,
        images=recorded_images(images.feeds),
        versions=package_versions(),
    )
    notes = {
        "worst": found.best.worst.as_document(),
        "limits": limits.model_dump(),
        "weight_bits": bits,
        "fp32_convs": list(found.best.excluded),
        "path": [{"excluded": list(step.excluded), **step.worst.as_document()} for step in found.path],
        "risks": [{**asdict(risk), "score": risk.score} for risk in risks],
        "calibrated_on": images.feeds.count,
        "judged_on": len(images.judged),
        "judged_apart": images.apart,
    }
    return recorded(in_form(found.document, form), record, notes)


def _search_convs(
    model: Network, quantised: Quantised, form: Form, images: ImageSplit, limits: Limits, say: Notify
) -> SearchResult:
    """The int8 graph with as few convs in fp32 as the limits allow, judged as the final check judges it."""
    metadata, _ = description_of(quantised.source)
    criterion = Criterion(CheckpointArtefact("the checkpoint", model, metadata), images.judged, limits)

    def judge(candidate: onnx.ModelProto) -> Judgement:
        with OnnxArtefact("int8", in_form(candidate, form), *description_of(candidate)) as artefact:
            return criterion.judge(artefact)[0]

    return search(
        quantised,
        judge,
        lambda: layer_errors(quantised, images.feeds.first(1)),
        progress=lambda used, step: say(f"  {step.worst}; {len(step.excluded)} convs in fp32"),
    )


def _not_reached(found: SearchResult, limits: Limits, bits: WeightBits) -> PrecisionError:
    """The error for a search that failed; its hint names the next wider limit that would allow the best result."""
    worst = found.best.worst
    if worst.limit == "miou_drop":
        wider, required = math.ceil(100 * worst.value) / 100, f"at most {limits.miou_drop:g} may be lost"
    else:
        wider = math.floor(worst.value) / 100
        required = f"at least {100 * float(getattr(limits, worst.limit)):g} % are required"
    ways = [f"Allow it with --limits {worst.limit}={wider:g}"]
    ways.append("calibrate on more images of the site with --calibrate, try --calibration entropy")
    if bits == 7:
        ways.append("use all 8 bits with --vnni yes if the target CPU has VNNI")
    return PrecisionError(
        f"int8 does not keep the masks: {worst}, and {required}; leaving {len(found.best.excluded)} convs in fp32 did "
        "not help",
        f"{', '.join(ways)}, or choose --precision fp16.",
    )
