"""int8: risk per layer, calibration, and the layers that must stay out so that the masks stay right."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Literal

import onnx

from rcil.errors import ConfigError
from rcil.nn import Segmenter
from rcil_export.check.artefact import CheckpointArtefact, OnnxArtefact
from rcil_export.check.criterion import Criterion, Judgement
from rcil_export.check.limits import Limits
from rcil_export.convert_types import Converted, PrecisionError, Say, recorded
from rcil_export.interface import Interface
from rcil_export.onnx_file import description_of
from rcil_export.precision.cpu import in_form
from rcil_export.precision.cpu_features import has_vnni
from rcil_export.precision.int8 import CalibrationOptions, calibrate, quantise
from rcil_export.precision.record import ConversionRecord, Form, package_versions, recorded_images
from rcil_export.precision.risk import risk_table
from rcil_export.precision.search import SearchResult, layer_errors, search
from rcil_export.precision.split import ImageSplit
from rcil_export.precision.weights import WeightBits

Vnni = Literal["auto", "yes", "no"]
MAX_RISKS = 8
LEFT_OUT = "in int8 it costs more than the limits allow"


def check_vnni(vnni: Vnni | None, interface: Interface) -> Vnni:
    """What was asked for, `auto` if nothing was; an error where the question does not arise."""
    if vnni is not None and (interface.precision != "int8" or interface.runtime != "cpu"):
        form = interface.precision if interface.precision != "int8" else f"int8 for {interface.runtime}"
        raise ConfigError(
            f"--vnni is about the weights of an int8 graph for CPUs, and this one is {form}",
            "Leave out --vnni, or choose --precision int8 and the form for CPUs (--for cpu).",
        )
    return vnni or "auto"


def weight_bits_for(form: Form, vnni: Vnni) -> WeightBits:
    """8 bits, except on CPUs without VNNI, whose 16-bit sums would overflow."""
    return 8 if form == "qdq" or vnni == "yes" or (vnni == "auto" and has_vnni()) else 7


def convert_int8(
    model: Segmenter,
    document: onnx.ModelProto,
    images: ImageSplit,
    limits: Limits,
    options: CalibrationOptions,
    vnni: Vnni,
    say: Say,
) -> Converted:
    """Quantise `document`, leaving out the convs whose rounding costs more than the user allows.

    Args:
        model: The network before folding: the reference, and what tells the risk that folding brings.
        document: Its graph in fp32.
        images: To calibrate on and to judge on.
        limits: What may be lost: the final check has the same.
        options: How ranges are chosen.
        vnni: Whether the CPU that will run the graph has VNNI; it decides on the bits of the weights.
        say: Told what is going on.
    """
    risks = risk_table(model)
    say("layers that folding made harder to quantise, the worst first:")
    for risk in risks[:MAX_RISKS]:
        say(f"  {risk.score:6.2f}  {risk.name}  (range x {risk.growth:.2f}, spread {risk.spread:.1f})")
    metadata, interface = description_of(document)
    form: Form = "cpu" if interface.runtime == "cpu" else "qdq"
    bits = weight_bits_for(form, vnni)
    say(f"{bits}-bit weights" + (f", VNNI: {vnni}" if form == "cpu" else ""))
    say(images.note)
    calibration = calibrate(document, images.feeds, options)
    quantised = quantise(document, calibration, bits)
    criterion = Criterion(CheckpointArtefact("the checkpoint", model, metadata), images.judged, limits)

    def judge(candidate: onnx.ModelProto) -> Judgement:
        with OnnxArtefact("int8", in_form(candidate, form), metadata, description_of(candidate)[1]) as artefact:
            return criterion.judge(artefact)[0]

    found = search(
        quantised,
        judge,
        lambda: layer_errors(quantised, images.feeds.first(1)),
        progress=lambda used, step: say(f"  {step.worst}; {len(step.excluded)} convs in fp32"),
    )
    if not found.reached:
        raise _not_reached(found, limits, bits)
    record = ConversionRecord(
        precision="int8",
        kept_fp32=dict.fromkeys(found.best.excluded, LEFT_OUT),
        form=form,
        weight_bits=bits,
        calibration=options,
        ranges=calibration.ranges,
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


def _not_reached(found: SearchResult, limits: Limits, bits: WeightBits) -> PrecisionError:
    worst = found.best.worst
    wider = worst.value if worst.limit == "miou_drop" else worst.value / 100
    ways = [f"Allow it with --limits {worst.limit}={_rounded_out(wider, worst.limit)}"]
    ways.append("calibrate on more images of the site with --calibrate, try --calibration entropy")
    if bits == 7:
        ways.append("use all 8 bits with --vnni yes if the target CPU has VNNI")
    return PrecisionError(
        f"int8 does not keep the masks: {worst}, and {_limit_text(worst, limits)}; leaving "
        f"{len(found.best.excluded)} convs in fp32 did not help",
        f"{', '.join(ways)}, or choose --precision fp16.",
    )


def _limit_text(worst: Judgement, limits: Limits) -> str:
    if worst.limit == "miou_drop":
        return f"at most {limits.miou_drop:g} may be lost"
    return f"at least {100 * float(getattr(limits, worst.limit)):g} % are required"


def _rounded_out(value: float, limit: str) -> str:
    """The next number that allows `value`, with two decimals."""
    return f"{(math.ceil if limit == 'miou_drop' else math.floor)(100 * value) / 100:g}"
