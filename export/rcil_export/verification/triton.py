"""Verifying a Triton model repository: the version of the checkpoint's step, and the files that describe it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError
from rcil_export.delivery import ONNX_NAME
from rcil_export.graph.description import parse_description, read_texts
from rcil_export.graph.interface import Interface
from rcil_export.triton.config import LABELS, MODEL_FILES, Queue, config_text
from rcil_export.triton.repository import CONFIG, VERSION, descriptions
from rcil_export.triton.serving import Serving, stated_serving
from rcil_export.triton.step_file import FILE_NAME, StepFile, read_step_file, signature_of
from rcil_export.verification.onnx_model import VerifiedGraph, verify_onnx
from rcil_export.verification.rebuild import Source
from rcil_export.verification.report import (
    ABSENT,
    EXTRA,
    Difference,
    Findings,
    compare_documents,
    compare_lines,
    extra_files,
)

PLAN_NAME = MODEL_FILES["tensorrt"]
STEP, TABLE, CONFIGURATION = "Description of this version", "Names of the classes", "Configuration of this model"


def is_model_repository(path: Path) -> bool:
    """Whether `path` is a Triton repository or one model of it, as opposed to a delivered folder."""
    if not path.is_dir() or (path / ONNX_NAME).exists():
        return False
    return bool(_models(path))


def _models(path: Path) -> list[Path]:
    if (path / CONFIG).exists():
        return [path]
    return sorted(child.parent for child in path.glob(f"*/{CONFIG}"))


def verify_repository(path: Path, source: Source, findings: Findings) -> None:
    """Make claims about the version of the checkpoint's step in every model; other steps need their own checkpoints."""
    models = _models(path)
    if path not in models:
        for other in extra_files(path, set()):
            if other not in models or other.is_symlink():
                findings.wrong(other, "extra", EXTRA, "not a model of a repository")
    for folder in models:
        _verify_model(folder, source, findings)


def _verify_model(folder: Path, source: Source, findings: Findings) -> None:
    step = source.metadata.step
    versions = {int(p.name): p for p in sorted(folder.iterdir()) if p.is_dir() and VERSION.fullmatch(p.name)}
    if step not in versions:
        findings.wrong(folder, "version", f"A version of step {step}", "there is none")
    for number, version in versions.items():
        if number != step:
            findings.not_proved(version, "version", STEP, f"step {number}: verify it with its own checkpoint")
    for path in extra_files(folder, {CONFIG, LABELS}):
        if path not in versions.values() or path.is_symlink():
            findings.wrong(path, "extra", EXTRA, "an unknown file")
    if step in versions:
        interface = _verify_version(versions[step], source, findings)
        _verify_shared(folder, interface, source, findings, newest=step == max(versions))


def _verify_version(version: Path, source: Source, findings: Findings) -> Interface | None:
    """Make claims about the model file and step.json; returns the interface that the model states, if any."""
    graph: VerifiedGraph | None = None
    onnx, plan = version / ONNX_NAME, version / PLAN_NAME
    if onnx.exists():
        graph = verify_onnx(onnx, source, findings)
    elif plan.exists():
        findings.read(plan)
        findings.not_proved(plan, "engine", "Engine of this checkpoint", "classic TensorRT never builds the same bytes")
    else:
        findings.wrong(version, "version", STEP, f"neither {ONNX_NAME} nor {PLAN_NAME}")
    interface = graph.interface if graph is not None and isinstance(graph.interface, Interface) else None
    _verify_step_file(version, onnx if onnx.exists() else plan, interface, source, findings)
    for path in extra_files(version, {ONNX_NAME, PLAN_NAME, FILE_NAME}):
        findings.wrong(path, "extra", EXTRA, "an unknown file")
    if onnx.exists() and plan.exists():
        findings.wrong(plan, "extra", EXTRA, f"beside {ONNX_NAME}")
    return interface


def _verify_step_file(
    version: Path, model: Path, interface: Interface | None, source: Source, findings: Findings
) -> None:
    path = version / FILE_NAME
    try:
        stated = read_step_file(version)
        findings.read(path)
    except RcilError as error:
        findings.wrong(version, "step", STEP, error.message)
        return
    expected = _expected_step(stated, model, interface, source, findings)
    document = stated.model_dump(mode="json")
    compared = {key: document[key] for key in expected}
    text = "all fields follow from the checkpoint and the model"
    findings.add(path, "step", STEP, text, compare_documents(compared, expected))


def _expected_step(
    stated: StepFile, model: Path, interface: Interface | None, source: Source, findings: Findings
) -> dict[str, Any]:
    """The fields that are known; those about tensors need a graph with a readable interface."""
    metadata = source.metadata
    fields: dict[str, Any] = {
        "step": metadata.step,
        "classes": metadata.model_dump(mode="json")["classes"],
        "colour_order": metadata.colour_order,
        "backend": "onnxruntime" if model.name == ONNX_NAME else "tensorrt",
        "model_sha256": findings.files.get(findings.name(model), ABSENT),
    }
    if interface is not None:
        signature = signature_of(interface, len(metadata.classes))
        fields["signature"] = json.loads(signature.model_dump_json())
        if stated.batch is not None:
            fields["batch"] = interface.shape.batch.model_dump(mode="json")
        if stated.description is not None:
            metadata, interface = parse_description(read_texts(model), model)
            described = {"metadata": metadata.model_dump(mode="json"), "interface": interface.model_dump(mode="json")}
            fields["description"] = described
    return fields


def _verify_shared(
    folder: Path, interface: Interface | None, source: Source, findings: Findings, *, newest: bool
) -> None:
    """Make claims about the files that describe all versions, which are written with the newest version."""
    labels, config = folder / LABELS, folder / CONFIG
    if not newest:
        for path, title in ((labels, TABLE), (config, CONFIGURATION)):
            findings.not_proved(path, "shared", title, "it belongs to a newer step")
        return
    names = "".join(f"{c.name}\n" for c in source.metadata.classes)
    findings.add(labels, "labels", TABLE, "one per row", _lines(labels, names, findings))
    if interface is None:
        findings.not_proved(config, "config", CONFIGURATION, "the model does not say what tensors it has")
        return
    serving = _serving(config, findings)
    wanted = config_text(
        folder.name,
        signature_of(interface, len(source.metadata.classes)),
        interface.shape,
        backend="onnxruntime",
        queue=Queue(),
        serving=serving,
        precision=interface.precision,
        descriptions=descriptions(folder),
    )
    stated = ", ".join(f"{key} {value}" for key, value in asdict(serving).items() if value != asdict(Serving())[key])
    text = "the text of a fresh export" + (f" with {stated}" if stated else "")
    findings.add(config, "config", CONFIGURATION, text, _lines(config, wanted, findings))


def _serving(config: Path, findings: Findings) -> Serving:
    """The serving options in the file, which are the publisher's choice."""
    try:
        return stated_serving(findings.read(config).decode("utf-8", "replace"))
    except (RcilError, ValueError):  # the options are not valid, so the lines will differ
        return Serving()


def _lines(path: Path, expected: str, findings: Findings) -> Iterator[Difference]:
    """Lines of a text file that differ."""
    if not path.is_file():
        yield Difference(path.name, ABSENT, f"{len(expected.splitlines())} lines")
        return
    yield from compare_lines(path.name, findings.read(path).decode("utf-8", "replace"), expected)
