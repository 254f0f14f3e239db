import copy
from dataclasses import asdict

import numpy as np
import pytest

from rcil.cli.tables import MAX_WARNINGS, print_preflight, print_report
from rcil.core.images import write_image
from rcil.data.check import Problem
from rcil.site.forgetting import NewClass, OldClass
from rcil.site.preflight import Preflight, preflight
from rcil.site.report import as_markdown, certainty, limits_text, read_log, verdict, write_html


def finding(name, role, state):
    return {"name": name, "role": role, "state": state, "text": ""}


REPORT = {
    "verdict": "accepted",
    "reason": "all is well",
    "rejected": None,
    "findings": [
        finding("background", "background", "free"),
        finding("a|b", "old", "kept"),
        finding("car", "old", "unmeasured"),
        finding("cone", "new", "kept"),
    ],
    "max_drop": 5.0,
    "min_new": 20.0,
    "max_background_drop": None,
    "strict": False,
    "method": "rcil",
    "evaluated_on": "val",
    "images": 12,
    "groups": 7,
    "largest_drop": -1.0,
    "old_classes": [
        asdict(OldClass("background", "agreement", None, None, 96.75, 3.25, 12345, (1.0, 5.55), 7, 2.5)),
        asdict(OldClass("a|b", "labels", 80.0, 81.0, None, -1.0, 500, (-2.0, 0.25), 6, 0.0)),
        asdict(OldClass("car", "no", None, None, None, None, 3)),
    ],
    "new_classes": [asdict(NewClass("cone", 55.5, 700, (40.0, 70.0), 7))],
    "confusion": [[9, 1, 0, 2], [0, 5, 0, 0], [0, 0, 0, 0], [1, 0, 0, 7]],
    "next": [{"text": "Export <it>:", "command": "rcil-export 'a b'"}, {"text": "Then rest.", "command": ""}],
    "preflight": {"train_images": 9, "problems": [{"severity": "warning", "place": "class x", "message": "rare"}]},
    "pictures": [{"file": "00_a.jpg", "sample": "a", "caption": "poor for cone: IoU 3 %"}],
}
LOG = "epoch,iteration,lr,unce,kd,held_out_miou\n0,1,0.1,0.9,0.2,\n0,2,0.1,0.7,0.1,\n0,2,,,,0.5\n"


def changed(**fields):
    return {**copy.deepcopy(REPORT), **fields}


@pytest.mark.parametrize("outcome", ["accepted", "uncertain", "rejected"])
def test_the_verdict(outcome):
    assert verdict(changed(verdict=outcome)) == f"{outcome.upper()}: all is well"


def test_the_evidence():
    assert "12 images (val), which show 7 different scenes" in certainty(REPORT)
    assert "too little evidence" not in certainty(REPORT)
    assert "at least 5 different scenes" in certainty(changed(groups=4))


def test_the_limits():
    text = limits_text(REPORT)
    assert "at most 5 points" in text and "at least 20 %" in text and "background has no limit" in text
    assert "logits of old classes unchanged" in limits_text(changed(strict=True))
    assert "background may lose at most 3 points" in limits_text(changed(max_background_drop=3.0))


def test_markdown():
    lines = as_markdown(REPORT).splitlines()
    assert lines[0] == "# Adding cone"
    assert "| background | agreement | - | - | 96.8 | 3.2 | 1.0 to 5.5 | no limit | 2.5 | 12,345 | 7 |" in lines
    assert "| a\\|b | labels | 80.0 | 81.0 | - | -1.0 | -2.0 to 0.2 | kept | 0.0 | 500 | 6 |" in lines
    assert "| car | not measured | - | - | - | - | - | not measured | - | 3 | 0 |" in lines
    assert "| cone | 55.5 | 40.0 to 70.0 | kept | 700 | 7 |" in lines
    assert lines[-7:] == ["1. Export <it>:", "", "   ```", "   rcil-export 'a b'", "   ```", "", "2. Then rest."]


def test_terminal(capsys):
    print_report(changed(verdict="rejected", reason="car dropped 12.3 points, limit 5"))
    shown = capsys.readouterr().out
    for text in (
        "background",
        "1.0 to 5.5",
        "not measured",
        "55.5",
        "REJECTED: car dropped 12.3 points",
        "rcil-export 'a b'",
    ):
        assert text in shown


def test_page(tmp_path):
    write_image(tmp_path / "00_a.jpg", np.zeros((4, 4, 3), np.uint8))
    (tmp_path / "log.csv").write_text(LOG)
    write_html(tmp_path / "report.html", REPORT, tmp_path, tmp_path / "log.csv")
    page = (tmp_path / "report.html").read_text()
    for text in (
        *("Adding cone", '<div class="banner good"', "<strong>ACCEPTED</strong>", "<p>All is well.</p>"),
        *("<td>96.8</td>", '<span class="mark good">kept</span>', '<span class="mark dim">no limit</span>'),
        *("class x", "rare", "Training", "Confusion", "poor for cone", "<pre>rcil-export &#x27;a b&#x27;</pre>"),
    ):
        assert text in page
    assert page.count("data:image/png;base64") == 3 and page.count("data:image/jpeg;base64") == 1
    assert page.index("ACCEPTED") < page.index("Old classes") < page.index("Pictures") < page.index("Export &lt;it&gt;")


def test_a_page_without_log_and_pictures(tmp_path):
    write_html(tmp_path / "r.html", changed(pictures=[], confusion=[], verdict="rejected"), tmp_path, tmp_path / "no")
    page = (tmp_path / "r.html").read_text()
    assert '<div class="banner bad"' in page and "Training" not in page and "Pictures" not in page


def test_the_log(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    rows = read_log(tmp_path / "log.csv")
    assert rows[0] == {"epoch": 0, "iteration": 1, "lr": 0.1, "unce": 0.9, "kd": 0.2}
    assert rows[2] == {"epoch": 0, "iteration": 2, "held_out_miou": 0.5}


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
