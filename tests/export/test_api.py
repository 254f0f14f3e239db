import numpy as np
import onnx
import pytest
from delivered import save_checkpoint
from onnx import numpy_helper

import rcil_export
from rcil.core.errors import ConfigError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("api"), step=1, blocks=None)


@pytest.fixture(scope="module")
def exported(checkpoint):
    folder = checkpoint.parent / "deployed"
    options = {"size": (32, 48), "batch": (1, 1, 2), "precision": "fp16"}
    return rcil_export.export(str(checkpoint), str(folder), **options, targets=["onnx"], rounds=0)


def test_an_export_states_what_was_asked(exported):
    assert exported.ok
    facts = exported.document["facts"]["graph"]
    assert facts.startswith("fp16, 1..2 x 32 x 48")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 64)}, "'0x64' is not a size"),
        ({"size": (64, 64), "dynamic": ((32, 32), (64, 64), (96, 96))}, "--size and --dynamic"),
        ({"targets": ("enginee",)}, "enginee"),
        ({"precision": "fp17"}, "fp17"),
    ],
)
def test_what_cannot_be_exported_is_refused(checkpoint, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        rcil_export.export(checkpoint, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_check_takes_limits_by_name(checkpoint, exported):
    graph = exported.files["model.onnx"]
    assert rcil_export.check(checkpoint, graph, max_images=1, bisect=False).ok
    strict = rcil_export.check(checkpoint, graph, max_images=1, bisect=False, limits={"error": 1e-9})
    assert not strict.ok


def test_verify_repeats_the_recorded_conversion_and_sees_a_changed_weight(checkpoint, exported, tmp_path):
    graph = exported.files["model.onnx"]
    result = rcil_export.verify(graph, checkpoint)
    assert result.ok and not result.differences
    document = onnx.load(graph)
    weight = max(document.graph.initializer, key=lambda tensor: np.prod(tensor.dims))
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] += 0.5
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    (tmp_path / "changed.onnx").write_bytes(document.SerializeToString())
    assert not rcil_export.verify(tmp_path / "changed.onnx", checkpoint).ok
