"""The parts of a delivered `report.json` that follow from the files; measurements are not repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rcil.model.attached import AttachedArchitecture
from rcil_export.certificate.certify import cost_items, counts_of_twin
from rcil_export.certificate.counts import deployed_counts
from rcil_export.certificate.twin import twin_document
from rcil_export.delivery import ENGINE_NAME, ONNX_NAME, SIDECAR_NAME
from rcil_export.graph.preprocessing import usual_input_dims
from rcil_export.verification.onnx_model import VerifiedGraph
from rcil_export.verification.rebuild import Source
from rcil_export.verification.report import Difference, Findings, compare_documents

REPORT, NUMBERS = "Report of these files", "Measurements"
PROVED = "its hashes, facts and costs are those of the files, its verdict that of its items"
MADE = (ONNX_NAME, ENGINE_NAME, SIDECAR_NAME)
HASH = re.compile(r"sha256 ([0-9a-f]{12,64})")


def verify_report(path: Path, graph: VerifiedGraph | None, source: Source, findings: Findings) -> dict[str, Any] | None:
    """Make claims about `report.json`: hashes, facts, costs and verdict.

    Returns:
        The report; None if it cannot be read.
    """
    try:
        document: dict[str, Any] = json.loads(findings.read(path))
        differences = [
            *_hashes(document, source, findings),
            *compare_documents(document["model"], source.metadata.model_dump(mode="json"), "model"),
            *_verdict(document),
            *([] if graph is None else [*_facts(document["facts"], graph), *_costs(document, graph, source)]),
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        findings.wrong(path, "report", REPORT, "not a report of rcil-export, or damaged")
        return None
    findings.add(path, "report", REPORT, PROVED, differences)
    findings.not_proved(path, "numbers", NUMBERS, "they were measured, and are not measured again")
    return document


def _hashes(document: dict[str, Any], source: Source, findings: Findings) -> Iterator[Difference]:
    """Differences of the hashes of all files, of the files of each result, and of the short hashes for people."""
    made = {name: findings.files[name] for name in MADE if name in findings.files}
    actual = {"checkpoint": source.sha256, **made}
    yield from compare_documents(document.get("sha256"), actual, "sha256")
    about = {"checkpoint": source.sha256, "model": made[ONNX_NAME], "engine": made.get(ENGINE_NAME)}
    for result in document["results"]:
        for what, digest in result.get("sha256", {}).items():
            if digest != about.get(what):
                yield Difference(f"results.{result['key']}.sha256.{what}", str(digest), str(about.get(what)))
    for name in ("checkpoint", ONNX_NAME, ENGINE_NAME):
        stated, digest = document["facts"].get(name), actual.get(name)
        found = HASH.search(stated or "")
        if (stated is None) != (digest is None) or (digest and (found is None or not digest.startswith(found[1]))):
            yield Difference(f"facts.{name}", str(stated), str(digest))


def _facts(facts: dict[str, str], graph: VerifiedGraph) -> Iterator[Difference]:
    interface, nodes = graph.interface, len(graph.document.graph.node)
    expected = {
        "graph": f"{interface.precision}, {interface.shape}, opset {interface.opset}, {nodes} nodes",
        "outputs": ", ".join(interface.outputs),
    }
    for name, text in expected.items():
        if facts.get(name) != text:
            yield Difference(f"facts.{name}", str(facts.get(name)), text)


def _costs(document: dict[str, Any], graph: VerifiedGraph, source: Source) -> Iterator[Difference]:
    """Differences of parameters and multiply-accumulates, counted and calculated again."""
    if isinstance(source.metadata.architecture, AttachedArchitecture):
        counts = counts_of_twin(twin_document(source.path, source.metadata, graph.interface), graph.interface)
    else:
        counts = deployed_counts(source.metadata, graph.interface.shape.usual[1:])
    items = cost_items(graph.document, counts, usual_input_dims(graph.interface))
    expected = {item.key: item for item in items}
    for result in document["results"]:
        for item in result["items"]:
            if result["key"] == "certificate" and item["key"] in expected:
                wanted = expected.pop(item["key"]).as_document()
                yield from compare_documents(item, wanted, f"results.certificate.{item['key']}")
    for key in expected:
        yield Difference(f"results.certificate.{key}", "absent", expected[key].measured)


def _verdict(document: dict[str, Any]) -> Iterator[Difference]:
    """Differences between the verdicts and the items that they follow from."""
    for result in document["results"]:
        ok = all(item["passed"] is not False for item in result["items"])
        if result["ok"] is not ok:
            yield Difference(f"results.{result['key']}.ok", str(result["ok"]), str(ok))
    ok = all(item["passed"] is not False for result in document["results"] for item in result["items"])
    if document["ok"] is not ok:
        yield Difference("ok", str(document["ok"]), str(ok))
