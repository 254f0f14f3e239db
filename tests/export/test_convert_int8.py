import onnx
import pytest
import torch
from exports import described
from networks import small_arch
from sites import make_site

from rcil.checkpoint.metadata import Metadata, class_table
from rcil.data.site import read_site
from rcil.evaluate import evaluate
from rcil.nn import build, fold
from rcil_export import convert_int8
from rcil_export.check.images import images_for
from rcil_export.convert import convert
from rcil_export.convert_int8 import miou
from rcil_export.convert_types import PrecisionError
from rcil_export.interface import Interface
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.precision.search import search
from rcil_export.shapes import InputShape


@pytest.mark.parametrize("runtime", ["cpu", "tensorrt"])
def test_int8_is_measured_and_described(runtime):
    model, metadata = described("resnet18", 1)
    interface = Interface(shape=InputShape.of(48, 64), precision="int8", runtime=runtime)
    said = []
    converted = convert(model, metadata, interface, miou_drop=100, say=said.append)
    assert converted.notes["drop"] <= converted.notes["drop_allowed"] == 100
    assert converted.notes["score"] == "agreement"
    assert len(converted.notes["risks"]) > 10
    assert any("harder to quantise" in line for line in said)
    assert any("generated images" in line for line in said)
    kinds = {t.data_type for t in converted.document.graph.initializer if len(t.dims) == 4}
    assert onnx.TensorProto.INT8 in kinds
    zero_points = {t.data_type for t in converted.document.graph.initializer if len(t.dims) == 0}
    assert (onnx.TensorProto.UINT8 in zero_points) is (runtime == "cpu")


def test_miou_is_that_of_the_evaluation(tmp_path):
    make_site(tmp_path / "site")
    names = [["background", "ball", "cone"]]
    torch.manual_seed(0)
    model = build(small_arch(), names).eval()
    metadata = Metadata(architecture=model.arch, classes=class_table(names))
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(64, 96)))
    data = read_site(tmp_path / "site")
    expected = evaluate(model, metadata, data, data.splits["val"]).all
    assert miou(document, images_for(tmp_path / "site", None)) == pytest.approx(100 * expected, abs=1e-3)


def test_a_drop_that_cannot_be_reached_is_an_error(monkeypatch):
    model, metadata = described("resnet18", 1)
    interface = Interface(shape=InputShape.of(48, 64), precision="int8", runtime="cpu")
    monkeypatch.setattr(convert_int8, "search", lambda *args, **options: search(*args, evaluations=2, **options))
    with pytest.raises(PrecisionError, match=r"int8 loses .* points of agreement, -1 are allowed, and leaving 0 convs"):
        convert(model, metadata, interface, miou_drop=-1)
