import copy
from dataclasses import asdict

import numpy as np
import pytest

from rcil.cli.tables import MAX_WARNINGS, print_preflight, print_report
from rcil.core.images import write_image
from rcil.data.check import Problem
from rcil.site.forgetting import OldClass
from rcil.site.preflight import Preflight, preflight
from rcil.site.report import as_markdown, verdict, write_html


def old(*values):
    return asdict(OldClass(*values))


REPORT = {
    "rejected": None,
    "max_drop": 5.0,
    "method": "rcil",
    "evaluated_on": "val",
    "images": 12,
    "largest_drop": 3.25,
    "old_classes": [
        old("background", "agreement", None, None, 96.75, 3.25, 12345),
        old("a|b", "labels", 80.0, 81.0, None, -1.0, 500),
        old("car", "no", None, None, None, None, 3),
    ],
    "new_classes": [{"name": "cone", "iou": 55.5, "pixels": 700}],
    "preflight": {"train_images": 9, "problems": [{"severity": "warning", "place": "class x", "message": "rare"}]},
    "overlays": ["00_a.png"],
}


def changed(**fields):
    return {**copy.deepcopy(REPORT), **fields}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "ACCEPTED: the largest drop is 3.2 points, limit 5; not measured: car"),
        ({"rejected": "car dropped 12.3 points, limit 5"}, "REJECTED: car dropped 12.3 points, limit 5"),
        ({"old_classes": [], "largest_drop": -2.0}, "ACCEPTED: the largest drop is 0.0 points, limit 5"),
        (
            {"old_classes": [], "new_classes": [{"name": "cone", "iou": None, "pixels": 0}]},
            "ACCEPTED: the largest drop is 3.2 points, limit 5; hardly learned: cone",
        ),
    ],
)
def test_the_verdict(fields, text):
    assert verdict(changed(**fields)) == text


def test_markdown():
    lines = as_markdown(REPORT).splitlines()
    assert lines[0] == "# Adding cone"
    assert "| background | agreement | - | - | 96.8 | 3.2 | 12,345 |" in lines
    assert "| a\\|b | labels | 80.0 | 81.0 | - | -1.0 | 500 |" in lines
    assert "| car | not measured | - | - | - | - | 3 |" in lines
    assert "| cone | 55.5 | 700 |" in lines


def test_terminal(capsys):
    print_report(changed(rejected="car dropped 12.3 points, limit 5"))
    shown = capsys.readouterr().out
    for text in ("background", "96.8", "not measured", "55.5", "REJECTED: car dropped 12.3 points"):
        assert text in shown


def test_page(tmp_path):
    write_image(tmp_path / "00_a.png", np.zeros((4, 4, 3), np.uint8))
    write_html(tmp_path / "report.html", REPORT, tmp_path)
    page = (tmp_path / "report.html").read_text()
    for text in ("Adding cone", "ACCEPTED", "<td>96.8</td>", "class x", "rare", "data:image/png;base64"):
        assert text in page


def test_many_warnings_are_counted(capsys):
    print_preflight(Preflight(tuple(Problem("warning", f"place {i}", "text") for i in range(MAX_WARNINGS + 3))))
    shown = capsys.readouterr().out
    assert shown.count("warning: ") == MAX_WARNINGS
    assert "and 3 more warnings" in shown


def test_the_preflight_of_a_good_site(ask, capsys):
    print_preflight(preflight(ask()))
    shown = capsys.readouterr().out
    assert "new class cone: 12,800 pixels in 8 images" in shown
    assert "forgetting is measured on 8 (val)" in shown
