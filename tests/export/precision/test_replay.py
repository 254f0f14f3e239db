import json
import shutil

import cv2
import onnx
import pytest
from precision_graphs import FIRST, small_graph, small_network

from rcil.core.errors import CheckpointError
from rcil.core.reading import DataError
from rcil_export.checks.limits import limits_for
from rcil_export.convert import convert
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape
from rcil_export.images import generated_images
from rcil_export.inspect_file import describe
from rcil_export.precision.record import CONVERSION_KEY, ConversionRecord, GeneratedImages, read_record, store_record
from rcil_export.precision.replay import remeasure, replay

LENIENT = limits_for("fp32", "int8", {"agreement": 0, "agreement_old_new": 0})
PRECISIONS = [("fp16", "cpu"), ("bf16", "cpu"), ("int8", "cpu"), ("int8", "tensorrt")]


def interface_of(precision, runtime):
    return Interface(
        shape=InputShape.of(48, 64), precision=precision, runtime=runtime, opset=22 if precision == "bf16" else 18
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for index, image in enumerate(generated_images(9, (48, 64), seed=5)):
        cv2.imwrite(str(folder / f"{index}.png"), image.pixels[..., ::-1])
    return folder


@pytest.fixture(scope="module")
def conversions(folder):
    """By precision and runtime: the fp32 graph and what it became."""
    made = {}
    for precision, runtime in PRECISIONS:
        interface = interface_of(precision, runtime)
        model, metadata = small_network(interface=interface)
        exact = to_onnx(model, metadata, interface.model_copy(update={"precision": "fp32"}))
        made[precision, runtime] = exact, convert(model, metadata, interface, calibrate=folder, limits=LENIENT)
    return made


@pytest.fixture(params=PRECISIONS, ids="-".join)
def conversion(request, conversions):
    return conversions[request.param]


def test_a_replay_gives_the_same_bytes(conversion):
    exact, converted = conversion
    record = read_record(converted.document)
    assert record == converted.record
    again = replay(exact, record)
    assert again.SerializeToString(deterministic=True) == converted.document.SerializeToString(deterministic=True)
    (repeat,) = converted.repeat.values()
    assert repeat(exact).SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)


def test_a_replay_takes_the_weights_of_its_graph_and_the_choices_of_the_record(conversions):
    """As the certificate does with the twin: other weights, the same ranges, the same convs in fp32."""
    _, converted = conversions["int8", "tensorrt"]
    record = converted.record.model_copy(update={"kept_fp32": {FIRST: "for the test"}})
    other = small_graph(seed=3, shape=InputShape.of(48, 64), runtime="tensorrt")
    first, second = (replay(graph, record) for graph in (conversions["int8", "tensorrt"][0], other))
    assert [n.op_type for n in first.graph.node] == [n.op_type for n in second.graph.node]
    ours, theirs = ({t.name: t for t in document.graph.initializer} for document in (first, second))
    assert ours["centred_scale"] == theirs["centred_scale"]
    assert ours["head.paths.0.0.weight_quantized"] != theirs["head.paths.0.0.weight_quantized"]
    assert f"{FIRST}.weight" in ours and f"{FIRST}.weight_quantized" not in ours


def test_the_images_are_measured_again_by_their_hashes(conversion, folder, tmp_path):
    exact, converted = conversion
    record = converted.record
    assert len(record.images) == (6 if record.precision == "int8" else 9)
    assert remeasure(exact, record, folder) == record
    shutil.copytree(folder, tmp_path / "images")  # as the part `images` of a site folder, with one file renamed
    (tmp_path / "images" / "0.png").rename(tmp_path / "images" / "renamed.png")
    assert remeasure(exact, record, tmp_path) == record


def test_a_missing_or_changed_image_is_named(conversions, folder, tmp_path):
    exact, converted = conversions["int8", "cpu"]
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "3.png").unlink()
    with pytest.raises(DataError, match=r"3\.png: this calibration image is missing"):
        remeasure(exact, converted.record, tmp_path / "copy")
    shutil.copy(folder / "4.png", tmp_path / "copy" / "3.png")
    with pytest.raises(DataError, match=r"3\.png: this calibration image has changed"):
        remeasure(exact, converted.record, tmp_path / "copy")
    with pytest.raises(DataError, match="no folder"):
        remeasure(exact, converted.record, None)


def test_other_ranges_show_in_the_new_record(conversions, folder):
    exact, converted = conversions["int8", "cpu"]
    wide = dict(converted.record.ranges) | {"centred": (-1000.0, 1000.0)}
    claimed = converted.record.model_copy(update={"ranges": wide})
    found = remeasure(exact, claimed, folder)
    assert [name for name in wide if found.ranges[name] != claimed.ranges[name]] == ["centred"]


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_generated_images_are_drawn_again(precision):
    interface = interface_of(precision, "cpu")
    model, metadata = small_network(interface=interface)
    exact = to_onnx(model, metadata, interface.model_copy(update={"precision": "fp32"}))
    record = convert(model, metadata, interface, limits=LENIENT).record
    assert record.images == GeneratedImages(count=3, size=(48, 64))
    assert remeasure(exact, record, None) == record
    older = record.model_copy(update={"images": GeneratedImages(count=3, size=(48, 64), version=0)})
    with pytest.raises(CheckpointError, match="generated images of version 0"):
        remeasure(exact, older, None)


def test_a_record_of_another_graph_or_a_damaged_one_is_refused(conversions):
    exact, converted = conversions["int8", "cpu"]
    stranger = converted.record.model_copy(update={"ranges": {"x": (0.0, 1.0)}})
    with pytest.raises(CheckpointError, match=r"no range of backbone\.stem\.0"):
        replay(exact, stranger)
    document = onnx.ModelProto.FromString(converted.document.SerializeToString())
    entry = next(entry for entry in document.metadata_props if entry.key == CONVERSION_KEY)
    for key, value in (("weight_bits", 5), ("precision", "fp8"), ("form", None)):
        entry.value = json.dumps(json.loads(converted.record.model_dump_json()) | {key: value})
        with pytest.raises(CheckpointError, match="its conversion is damaged"):
            read_record(document)
    assert read_record(exact) is None


def test_inspect_describes_the_conversion(conversions, tmp_path):
    for (precision, _), (_, converted) in conversions.items():
        write_onnx(tmp_path / "model.onnx", converted.document)
        told = describe(tmp_path / "model.onnx")["conversion"]
        assert told["precision"] == precision and told["versions"]["onnx"] == onnx.__version__
        assert told["measured on"] == f"{len(converted.record.images)} images"
    assert told["form"] == "qdq" and told["weight_bits"] == 8 and told["calibration"] == "percentile 99.99"


def test_a_record_replaces_an_older_one():
    document = small_graph(size=32)
    record = ConversionRecord(
        precision="bf16", kept_fp32={}, images=GeneratedImages(count=1, size=(32, 32)), versions={}
    )
    for kept in ({}, {FIRST: "for the test"}):
        store_record(document, record.model_copy(update={"kept_fp32": kept}))
    assert [entry.key for entry in document.metadata_props].count(CONVERSION_KEY) == 1
    assert read_record(document).kept_fp32 == {FIRST: "for the test"}
