"""Ratios of benchmarks are stored with their spread, and only changes beyond the noise fail."""

import json
import re
import subprocess
import sys

import pytest
from pages import ROOT

from tools.bench.ratios import Ratio, compare, judge, measured, paired, record

SCRIPT = ROOT / "tools" / "bench" / "ratios.py"
BASE = Ratio(2.0, 1.9, 2.1)


def documents(**ratios):
    """Recorded ratios of one benchmark."""
    return {"video": {"machine": "here", "ratios": {name: Ratio(*value)._asdict() for name, value in ratios.items()}}}


def run(tmp_path, found, baseline, *options):
    """The comparison as a program: exit code and output."""
    for bench, document in found.items():
        record(bench, {name: Ratio(**ratio) for name, ratio in document["ratios"].items()}, tmp_path / "measured")
    (tmp_path / "baseline.json").write_text(json.dumps(baseline))
    command = [sys.executable, SCRIPT, "--measured", tmp_path / "measured", "--baseline", tmp_path / "baseline.json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_pairs_give_median_and_quartiles():
    assert paired([2, 4, 6, 8, 10], [1, 1, 1, 1, 1]) == (6, 4, 8)
    assert paired([3], [2]) == (1.5, 1.5, 1.5)
    with pytest.raises(ValueError, match="zip"):
        paired([1, 2], [1])


def test_the_inverse_swaps_both_sides():
    assert Ratio(2, 1, 4).inverse == (0.5, 0.25, 1)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((2.0, 1.9, 2.1), "same"),
        ((1.7, 1.6, 1.81), "same"),  # 1.9 less 5 % is 1.805
        ((1.7, 1.6, 1.80), "worse"),
        ((1.0, 0.5, 2.0), "same"),  # a wide spread decides nothing
        ((2.3, 2.20, 2.4), "same"),  # 2.1 plus 5 % is 2.205
        ((2.3, 2.21, 2.4), "better"),
    ],
)
def test_spreads_must_lie_apart(after, verdict):
    assert judge(BASE, Ratio(*after), 0.05) == verdict


def test_every_ratio_gets_a_verdict():
    before, after = documents(a=(2, 2, 2), b=(2, 2, 2), c=(2, 2, 2)), documents(a=(2, 2, 2), b=(1, 1, 1), d=(3, 3, 3))
    expected = {"a": "same", "b": "worse", "c": "missing", "d": "new"}
    assert compare(before, after, 0.05) == {("video", name): verdict for name, verdict in expected.items()}


def test_what_is_recorded_is_read_again(tmp_path, capsys):
    record("serve http", {"local / v2": Ratio(0.9, 0.8, 0.95)}, tmp_path)
    assert "serve http: local / v2: 0.900 (0.800 to 0.950)" in capsys.readouterr().out
    ratio = {"value": 0.9, "low": 0.8, "high": 0.95}
    assert measured(tmp_path)["serve http"]["ratios"] == {"local / v2": ratio}


def test_the_program_passes_fails_and_updates(tmp_path):
    slow, good = documents(ours=(1.0, 0.98, 1.02)), documents(ours=(2.0, 1.98, 2.02))
    code, text = run(tmp_path, slow, good)
    assert code == 1 and "| video | ours | 2.000 (1.980 to 2.020) | 1.000 (0.980 to 1.020) | worse |" in text
    assert run(tmp_path, slow, good, "--tolerance", "0.6")[0] == 0
    assert run(tmp_path, slow, good, "--update")[0] == 0
    stored = json.loads((tmp_path / "baseline.json").read_text())
    assert run(tmp_path, slow, stored)[0] == 0


def test_what_was_not_measured_fails_unless_that_is_meant(tmp_path):
    found, baseline = documents(ours=(2, 2, 2)), documents(ours=(2, 2, 2), gone=(2, 2, 2))
    assert run(tmp_path, found, baseline)[0] == 1
    assert run(tmp_path, found, baseline, "--partial")[0] == 0


def test_nothing_measured_is_an_error(tmp_path):
    code, text = run(tmp_path, {}, documents(ours=(2, 2, 2)))
    assert code == 1 and "make bench" in text


def test_no_baseline_is_an_error(tmp_path):
    code, text = run(tmp_path, documents(ours=(2, 2, 2)), {})
    assert code == 1 and "--update" in text


def test_every_benchmark_of_make_bench_records_its_ratios():
    """But for the whole export, which has times and memory alone."""
    recipe = re.search(r"^bench: setup\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    scripts = set(re.findall(r"tools/bench/\w+\.py", recipe))
    assert len(scripts) > 8
    for script in scripts:
        text = (ROOT / script).read_text()
        assert re.search(r"^from ratios import .*\brecord\b", text, re.M) and "record(" in text, script
