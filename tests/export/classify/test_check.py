from functools import partial

import numpy as np
import pytest
from networks import randomise
from onnx import helper
from typer.testing import CliRunner

from rcil.classify.checkpoint import save_classifier
from rcil.classify.network import HeadSpec, build_classifier, fold_classifier
from rcil.core.errors import ConfigError
from rcil.model.architecture import Architecture
from rcil.model.metadata import ClassifierMetadata, class_table
from rcil_export.check_files import check_files
from rcil_export.checks.limits import DEFAULTS
from rcil_export.classify.scores import ScoredGraph, batch_items, size_items
from rcil_export.cli.app import app
from rcil_export.convert import deployed_metadata
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import ClassifierInterface
from rcil_export.graph.onnx_file import load_document, write_onnx
from rcil_export.graph.shapes import parse_shape
from rcil_export.images import CheckImage, CheckImages

OPEN = ClassifierInterface(shape=parse_shape(None, "32x32:32x48:64x64", "1:2:3"))


@pytest.fixture(scope="module", params=[HeadSpec("linear"), HeadSpec("cosine", 2)], ids=["linear", "cosine"])
def delivered(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    arch = Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=4)
    model = build_classifier(arch, request.param, [["a", "b"], ["c"]])
    randomise(model)
    metadata = ClassifierMetadata(
        architecture=arch,
        classes=class_table([["a", "b"], ["c"]]),
        step=1,
        head=request.param.kind,
        proxies=request.param.proxies,
        size=32,
    )
    checkpoint = folder / "c.safetensors"
    stored = save_classifier(checkpoint, model.eval(), metadata)
    folded = fold_classifier(model)[0]
    described = deployed_metadata(stored, checkpoint)
    write_onnx(folder / "model.onnx", to_onnx(folded, described, OPEN))
    return checkpoint, folder / "model.onnx", folded, described


def failed(results):
    return {item.key: item.measured for result in results for item in result.items if item.passed is False}


def test_an_export_passes_with_batches_and_sizes(delivered):
    results, outputs = check_files(*delivered[:2])
    assert failed(results) == {} and outputs is None
    assert {"plain_graph", "interface", "class_table", "batch", "sizes"} <= {i.key for r in results for i in r.items}


def test_the_command_takes_classifiers(delivered, tmp_path):
    page = tmp_path / "check.html"
    run = CliRunner().invoke(app, ["check", *map(str, delivered[:2]), "--html", str(page)])
    assert run.exit_code == 0, run.output
    assert "Same graph as the plain network" in run.output and page.exists()


def test_mutants_are_named(delivered, tmp_path):
    document = load_document(delivered[1])
    document.graph.output[0].name = "labels"
    next(node for node in document.graph.node if node.output[0] == "label").output[0] = "labels"
    pool = next(node for node in document.graph.node if node.op_type == "MaxPool")
    document.graph.node.append(helper.make_node("Relu", list(pool.output), ["dead"], name="dead"))
    write_onnx(tmp_path / "mutant.onnx", document)
    found = failed(check_files(delivered[0], tmp_path / "mutant.onnx")[0])
    assert "labels" in found["interface"] and "nobody reads dead" in found["lint"]
    assert "label" in found["runs"]


def test_mixed_rows_and_wrong_sizes_are_named(delivered):
    _, graph, folded, metadata = delivered
    images = list(np.random.default_rng(0).integers(0, 256, (3, 32, 48, 3), dtype=np.uint8))

    class Mixed(ScoredGraph):
        def run(self, images):
            labels, scores = super().run(images)
            return labels, scores[::-1]

    class Narrow(ScoredGraph):
        def run(self, images):
            return super().run([image[:, :32] for image in images])

    document = load_document(graph)
    several = CheckImages("", tuple(partial(CheckImage, "", image) for image in images))
    (mixed,) = batch_items(Mixed(document, metadata, OPEN), several, DEFAULTS["fp32"])
    assert mixed.passed is False and "row 0 of a batch of 2" in mixed.measured
    narrow, *_ = size_items(folded, Narrow(document, metadata, OPEN), images[0], DEFAULTS["fp32"])
    assert narrow.passed is False and narrow.measured.startswith("at 32x48")


def test_the_checkpoint_comes_first(delivered):
    with pytest.raises(ConfigError, match="checkpoint and its ONNX file"):
        check_files(delivered[1], delivered[0])
