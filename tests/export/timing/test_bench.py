import json

import numpy as np
import pytest
import torch
from networks import at_step, small_arch

from rcil.checkpoint.file import load, save
from rcil.core.errors import ConfigError
from rcil.model.metadata import Metadata, class_table
from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.runtime.providers import CPU
from rcil_export.runtime.sessions import open_session
from rcil_export.timing.bench import BenchOptions, bench, labels_of, report_of, torch_run
from rcil_export.timing.interleaved import LatencyOptions, run_of

FEW = LatencyOptions(rounds=3, warmup=1)
SMALL = Interface(shape=InputShape.of(32, 48, 2))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    model = at_step(small_arch("resnet18"), 2)
    steps = [list(names) for names in model.classifier.steps]
    path = tmp_path_factory.mktemp("bench") / "step2.safetensors"
    save(path, model, Metadata(architecture=model.arch, classes=class_table(steps), step=2))
    return path


@pytest.fixture(scope="module")
def exported(checkpoint):
    model, metadata = load(checkpoint)
    path = checkpoint.with_suffix(".onnx")
    write_onnx(path, to_onnx(fold(model)[0], metadata, SMALL))
    return path


def test_a_checkpoint_is_timed_in_four_forms(checkpoint):
    before = torch.get_num_threads()
    report = bench([checkpoint], BenchOptions(interface=SMALL, timing=FEW))
    assert torch.get_num_threads() == before
    names = [entry.name for entry in report.entries]
    assert names == ["ONNX folded", "ONNX plain twin", "ONNX two branches", "torch eager, folded"]
    assert all(len(entry.times) == 3 and min(entry.times) > 0 for entry in report.entries)
    assert report.shape == (2, 32, 48)
    first = report.entries[0]
    assert first.images_per_second == pytest.approx(2000 / first.p50_ms)
    document = json.loads(json.dumps(report.as_document()))
    assert [sum(entry["histogram"]) for entry in document["entries"]] == [3, 3, 3, 3]
    assert document["timing"]["providers"] == [CPU]


def test_files_of_one_name_are_told_apart(exported, tmp_path):
    paths = [tmp_path / folder / "model.onnx" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(exported.read_bytes())
    report = bench([*paths, exported], BenchOptions(timing=FEW))
    assert [entry.name for entry in report.entries] == [
        *(f"{path}: ONNX fp32" for path in paths),
        f"{exported.name}: ONNX fp32",
    ]
    assert labels_of([exported, exported]) == [f"{exported}: ", f"{exported} (2): "]


def test_an_onnx_file_sets_the_size_for_a_checkpoint_beside_it(checkpoint, exported):
    report = bench([exported, checkpoint], BenchOptions(timing=FEW, clock="processor"))
    assert report.shape == (2, 32, 48)
    assert [entry.name for entry in report.entries][:2] == ["step2.onnx: ONNX fp32", "step2.safetensors: ONNX folded"]
    assert len(report.entries) == 5
    assert "processor clock" in report.as_text()


def test_a_folded_checkpoint_has_no_branches_and_says_so(checkpoint, tmp_path):
    model, metadata = load(checkpoint)
    path = tmp_path / "folded.safetensors"
    save(path, fold(model)[0], metadata)
    report = bench([path], BenchOptions(interface=SMALL, timing=FEW))
    assert "ONNX two branches" not in [entry.name for entry in report.entries]
    assert "no two branches" in report.as_text()


@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_torch_does_the_work_of_the_graph(checkpoint, kind):
    model, metadata = load(checkpoint)
    folded = fold(model)[0]
    interface = Interface(shape=InputShape.of(32, 48, 2), input=kind, outputs=("mask", "confidence", "logits"))
    ours = torch_run(folded, metadata, interface, seed=5)()
    session = open_session(to_onnx(folded, metadata, interface), 1)
    shape = (2, 32, 48, 3) if kind == "uint8" else (2, 3, 32, 48)
    mask, confidence, logits = run_of(session, shape, seed=5)()
    assert ours["mask"].dtype == mask.dtype
    assert np.abs(ours["logits"] - logits).max() <= 1e-4 * np.ptp(logits)
    assert np.abs(ours["confidence"] - confidence).max() <= 1e-4
    assert (ours["mask"] == mask).mean() > 0.999


def test_numbers_and_table_by_hand():
    times = {"a": [0.010] * 4, "b": [0.020] * 3 + [0.030]}
    report = report_of(times, (4, 10, 20), BenchOptions(timing=LatencyOptions(rounds=4)), ["a note"])
    a, b = report.entries
    assert (a.p50_ms, a.images_per_second, a.ratio, a.low, a.high) == pytest.approx((10, 400, 1, 1, 1))
    assert (b.p50_ms, b.p95_ms, b.ratio, b.low) == pytest.approx((20, 28.5, 2, 2))
    lines = report.as_text().splitlines()
    assert lines[0] == f"4 x 10x20, 4 rounds, 1 threads, {CPU}, wall clock"
    assert lines[2].split() == ["a", "10.00", "10.00", "10.00", "400.00", "1"]
    assert lines[3].split()[:6] == ["b", "20.00", "28.50", "29.70", "200.00", "2.000"]
    assert lines[-1] == "note: a note"
    document = report.as_document()
    edges = document["histogram_edges_ms"]
    assert edges[0] == pytest.approx(10)
    assert edges[-1] == pytest.approx(29.7)
    counts = {entry["name"]: entry["histogram"] for entry in document["entries"]}
    assert counts["a"][0] == 4
    assert counts["b"][-1] == 1
    assert sum(counts["b"]) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (BenchOptions(timing=LatencyOptions(providers=("CUDAExecutionProvider9",))), "CUDAExecutionProvider9"),
        (BenchOptions(interface=Interface(shape=InputShape.of(64, 64)), timing=FEW), "not uint8 ones of 1 x 64 x 64"),
        (BenchOptions(interface=SMALL.model_copy(update={"input": "float"}), timing=FEW), "not float ones"),
    ],
)
def test_what_cannot_be_timed_is_an_error(exported, options, words):
    with pytest.raises(ConfigError, match=words):
        bench([exported], options)


def test_wrong_files_and_no_file(tmp_path):
    with pytest.raises(ConfigError, match=r"model.txt cannot be timed"):
        bench([tmp_path / "model.txt"], BenchOptions(timing=FEW))
    with pytest.raises(ConfigError, match="no model"):
        bench([], BenchOptions())


def test_an_open_graph_is_timed_at_the_usual_size(checkpoint, tmp_path):
    model, metadata = load(checkpoint)
    shape = parse_shape(None, "32x32:48x64:96x96", "1:2:4")
    path = tmp_path / "open.onnx"
    write_onnx(path, to_onnx(fold(model)[0], metadata, Interface(shape=shape)))
    assert bench([path], BenchOptions(timing=FEW)).shape == (2, 48, 64)
