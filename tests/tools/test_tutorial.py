"""The program behind docs/tutorial.md: which commands it runs, and what it writes into the page."""

import subprocess

import pytest

from tools import tutorial
from tools.pages import filled, part
from tools.tutorial import MODULES, PAGE, commands, line_with, parts, run

TEXT = "a\n<!-- check -->\nold\n<!-- end of check -->\nb\n"


def test_the_page_has_commands_without_tuning_and_all_parts():
    text = PAGE.read_text()
    lines = commands(text)
    assert {line.split()[0] for line in lines} == set(MODULES)
    (taught,) = [line for line in lines if "add-class" in line]
    assert {word for word in taught.split() if word.startswith("-")} == {"--from", "--data", "--class", "-o"}
    for name in ("check", "recipe", "result", "changes"):
        assert text.count(f"<!-- {name} -->\n") == text.count(f"<!-- end of {name} -->\n") == 1


def test_parts_are_replaced_and_the_rest_stays():
    once = filled(TEXT, {"check": ["x", "y"]})
    assert once == "a\n<!-- check -->\nx\ny\n<!-- end of check -->\nb\n" == filled(once, {"check": ["x", "y"]})
    assert part(once, "check") == ["x", "y"]
    with pytest.raises(SystemExit, match="no part 'other'"):
        filled(TEXT, {"other": []})


def test_numbers_come_from_the_files_of_the_run(tmp_path):
    (tmp_path / "vehicle").mkdir()
    (tmp_path / "changes").mkdir()
    (tmp_path / "vehicle" / "report.json").write_text(
        '{"verdict": "uncertain", "reason": "few images", '
        '"old_classes": [{"name": "road", "before": 80.04, "after": 78.0, "drop": 2.04, "interval": [1, 3.06]},'
        '{"name": "ball", "before": null, "after": null, "drop": null, "interval": null}],'
        '"new_classes": [{"name": "vehicle", "iou": 51.26, "interval": [40, 60]}]}'
    )
    (tmp_path / "changes" / "diff.json").write_text('{"headline": "2.1 % changed."}')
    printed = {
        "rcil data check yard": "a table\nimages: 5 train; 0 errors\nlook",
        "rcil add-class -o x": "a note\nscale 1\nend",
    }
    found = parts(printed, tmp_path)
    assert found["check"] == ["```text", "images: 5 train; 0 errors", "```"]
    assert found["recipe"][1] == "scale 1" and found["changes"][1] == "2.1 % changed."
    assert found["result"][2:5] == [
        "| road | 80.0 | 78.0 | 2.0 | 1.0 to 3.1 |",
        "| ball | – | – | – | – |",
        "| vehicle | – | 51.3 | – | 40.0 to 60.0 |",
    ]
    assert found["result"][-1] == "The verdict: **uncertain**. Few images."
    with pytest.raises(StopIteration):
        line_with(printed, "rcil data check", "nothing")


def test_finished_commands_are_not_repeated_and_interrupted_ones_continue(tmp_path, monkeypatch):
    called = []

    def fake(words, **options):
        called.append(words[2:])
        return subprocess.CompletedProcess(words, 7 if len(called) == 1 else 8, "done\n", "")

    monkeypatch.setattr(tutorial.subprocess, "run", fake)
    line = "rcil add-class --data yard -o out"
    with pytest.raises(SystemExit, match="exit code 7"):
        run(line, 0, tmp_path)
    (tmp_path / "out").mkdir()
    assert run(line, 0, tmp_path) == run(line, 0, tmp_path) == "done\n", "a rejected model is a result"
    assert called == [
        ["rcil", "add-class", "--data", "yard", "-o", "out"],
        ["rcil", "add-class", "--data", "yard", "-o", "out", "--resume"],
    ]
    run(f"{line} --epochs 1", 0, tmp_path)
    assert len(called) == 3, "another command of the same number"
