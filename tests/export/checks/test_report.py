import json

import numpy as np
import pytest
from exports import described

from rcil.checkpoint.file import save
from rcil_export.check_files import check_files
from rcil_export.checks.report import as_document, as_text, error_histogram, latency_histogram, summary, write_html
from rcil_export.checks.result import FOR_INFORMATION, Item, Result
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape

PASSED = Item("a", "first thing", True, "1", "at most 2")
FAILED = Item("b", "second thing", False, "<3>", "at most 2", {"times_ms": {"x": [1.0, 2.0], "y": [1.5, 1.0]}})
UNKNOWN = Item("c", "third", None, "no GPU", "the same")


def test_a_result_is_as_good_as_its_worst_item():
    assert Result("r", "t", (PASSED, UNKNOWN)).ok
    assert not Result("r", "t", (PASSED, FAILED)).ok


def test_text_says_what_was_required_where_it_failed():
    text = as_text([Result("r", "Title", (PASSED, FAILED, UNKNOWN))])
    assert text.splitlines()[0] == "Title"
    assert "pass  first thing   1" in text
    assert "FAIL  second thing  <3>" in text
    assert text.count("required: at most 2") == 1


WARNED = Item("d", "fourth", None, "WARNING: look", "more", warning=True)
TOLD = Item("e", "fifth", None, "x", FOR_INFORMATION)


def test_the_summary_says_what_was_not_checked():
    results = [Result("r", "Title", (PASSED, UNKNOWN, WARNED, TOLD))]
    text = as_text(results)
    assert text.splitlines()[-1] == "1 passed; warnings: fourth; not checked: third"
    assert "warn  fourth" in text
    document = as_document(results)
    assert document["ok"] and document["not_checked"] == ["third"] and document["warnings"] == ["WARNING: look"]
    assert summary([Result("r", "Title", (PASSED, FAILED))]) == "1 passed; FAILED: second thing"


def test_the_page_says_what_was_not_checked(tmp_path):
    write_html(tmp_path / "r.html", "Export", {}, [Result("r", "Title", (PASSED, UNKNOWN))])
    assert "1 passed; not checked: third" in (tmp_path / "r.html").read_text()


def test_the_page_names_what_failed_and_has_the_times(tmp_path):
    write_html(tmp_path / "r.html", "Export", {"model": "m"}, [Result("r", "Title", (PASSED, FAILED, UNKNOWN))])
    page = (tmp_path / "r.html").read_text()
    assert "FAILED: second thing" in page
    assert "&lt;3&gt;" in page and "<3>" not in page
    assert page.count("<img") == 1


@pytest.mark.parametrize("wrong", [False, True])
def test_a_real_comparison_fills_the_page(tmp_path, wrong):
    model, metadata = described("resnet18", 1)
    save(tmp_path / "a.safetensors", model, metadata)
    if wrong:
        model.classifier.groups[0].weight.data *= -1
        model.classifier.groups[0].bias.data *= -1
    graph = to_onnx(model, metadata, Interface(shape=InputShape.of(48, 64), folded=False))
    write_onnx(tmp_path / "b.onnx", graph)
    results, outputs = check_files(tmp_path / "a.safetensors", tmp_path / "b.onnx")
    write_html(tmp_path / "r.html", "Check", {}, results, [outputs])
    page = (tmp_path / "r.html").read_text()
    document = json.loads(json.dumps(as_document(results, [outputs])))
    assert document["ok"] is not wrong
    assert ("Pixels that changed their class" in page) is wrong
    assert page.count("<img") == 2


def test_the_same_numbers_give_the_same_picture():
    times = {"folded": list(np.linspace(1, 2, 20)), "plain": list(np.linspace(1.1, 2, 20))}
    assert latency_histogram(times) == latency_histogram(times)
    assert error_histogram([1e-8, 1e-4], [5, 1], 1e-4) != error_histogram([1e-8, 1e-4], [5, 2], 1e-4)
