import cv2
import onnx
import pytest
from exports import described
from precision_graphs import small_network
from sites import make_site

from rcil.checkpoint.file import save
from rcil.core.errors import ConfigError
from rcil_export import convert as convert_module
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact
from rcil_export.checks.limits import limits_for
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.criterion import Criterion
from rcil_export.checks.structure import structure_result
from rcil_export.convert import PrecisionError, check_vnni, convert, weight_bits_for
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import description_of
from rcil_export.graph.shapes import InputShape
from rcil_export.images import generated_images
from rcil_export.precision.feeds import split_images
from rcil_export.precision.int8 import weights
from rcil_export.precision.int8.search import search
from rcil_export.precision.int8.weights import has_vnni, kernels_are_exact
from rcil_export.request import Request
from rcil_export.run import run_export

NAMES = ("background", "ball", "other", "cone")
LENIENT = limits_for("fp32", "int8", {"agreement": 0, "agreement_old_new": 0, "miou_drop": 100})


def int8(runtime="cpu"):
    return Interface(shape=InputShape.of(48, 64), precision="int8", runtime=runtime)


@pytest.mark.parametrize(
    ("runtime", "vnni", "bits", "head"),
    [("cpu", "yes", 8, "deeplabv3"), ("cpu", "no", 7, "deeplabv3plus"), ("tensorrt", "auto", 8, "deeplabv3plus")],
)
def test_int8_is_measured_and_described(runtime, vnni, bits, head):
    model, metadata = described("resnet18", 1, head=head)
    said = []
    converted = convert(model, metadata, int8(runtime), limits=LENIENT, vnni=vnni, say=said.append)
    assert converted.notes["worst"]["excess"] <= 0 and converted.notes["weight_bits"] == bits
    assert len(converted.notes["risks"]) > 10
    assert any("harder to quantise" in line for line in said)
    assert any("generated images" in line for line in said)
    assert any(f"{bits}-bit weights" in line for line in said)
    kernels = [t for t in converted.document.graph.initializer if t.data_type == onnx.TensorProto.INT8 and t.dims[1:]]
    assert max(abs(onnx.numpy_helper.to_array(t).astype(int)).max() for t in kernels) == (63 if bits == 7 else 127)
    zero_points = {t.data_type for t in converted.document.graph.initializer if len(t.dims) == 0}
    assert (onnx.TensorProto.UINT8 in zero_points) is (runtime == "cpu")
    structure = structure_result("model.onnx", converted.document, metadata, int8(runtime))
    assert [item.measured for item in structure.items if item.passed is False] == []


def test_the_search_and_the_check_judge_by_the_same_numbers(tmp_path):
    make_site(tmp_path / "site")
    model, metadata = small_network(interface=int8())
    classes = [c.model_copy(update={"name": n}) for c, n in zip(metadata.classes, NAMES, strict=True)]
    metadata = metadata.model_copy(update={"classes": tuple(classes)})
    converted = convert(model, metadata, int8(), calibrate=tmp_path / "site", limits=LENIENT, vnni="no")
    images = split_images(tmp_path / "site", None, metadata, int8()).judged
    assert images.data is not None
    limits = limits_for("fp32", "int8")
    reference = CheckpointArtefact("checkpoint", model, metadata)
    with OnnxArtefact("int8", converted.document, *description_of(converted.document)) as artefact:
        report = compare_outputs(reference, artefact, images, limits)
        found = Criterion(reference, images, limits).judge(artefact)
    assert [j.excess for j in found] == sorted((j.excess for j in found), reverse=True)
    assert {(j.limit, j.classes) for j in found} == {
        (name, part)
        for part in ("all", "old", "new")
        for name in ("agreement" if part == "all" else "agreement_old_new", "miou_drop")
        if report.parts[part].agreement.pixels or name == "miou_drop"
    }
    for judgement in found:
        numbers = report.parts[judgement.classes]
        if judgement.limit == "miou_drop":
            assert judgement.value == pytest.approx(numbers.miou_drop, abs=1e-9)
        else:
            assert judgement.value == pytest.approx(100 * numbers.agreement.share, abs=0.05)  # ties
    items = {item.key: item.passed for item in report.as_result().items}
    wanted = ("agreement", "agreement_old", "agreement_new", "miou")
    assert (found[0].excess <= 0) == all(items.get(key) is not False for key in wanted)


def test_what_int8_may_lose_counts_for_old_and_new_classes_apart(monkeypatch):
    """All classes together pass, the new class alone does not: that must not look good enough to the search."""
    model, metadata = small_network(interface=int8())
    tried = {}

    def spy(quantised, judge, errors, **options):
        tried["worst"] = judge(quantised.without([]))
        return search(quantised, judge, errors, evaluations=1, **options)

    monkeypatch.setattr(convert_module, "search", spy)
    limits = limits_for("fp32", "int8", {"agreement": 0, "agreement_old_new": 1})
    with pytest.raises(PrecisionError) as caught:
        convert(model, metadata, int8(), limits=limits, vnni="no")
    assert tried["worst"].limit == "agreement_old_new" and tried["worst"].classes in ("old", "new")
    assert "at least 100 % are required; leaving 0 convs in fp32" in caught.value.message
    assert "--limits agreement_old_new=0." in caught.value.hint and "--vnni yes" in caught.value.hint


def test_vnni_is_a_question_of_the_cpu_form_alone():
    assert check_vnni(None, int8("tensorrt")) == "auto" and check_vnni("no", int8()) == "no"
    with pytest.raises(ConfigError, match="int8 for tensorrt"):
        check_vnni("yes", int8("tensorrt"))
    with pytest.raises(ConfigError, match="this one is fp16"):
        check_vnni("auto", int8().model_copy(update={"precision": "fp16"}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("flags\t\t: fpu sse4_2 avx2 avx512_vnni\n", True),
        ("flags : fpu avx_vnni", True),
        ("flags : amx_int8", True),
        ("Features\t: fp asimd asimddp", True),
        ("flags\t\t: fpu avx2 avx512f\nbugs : avx512_vnni", False),
        ("Features : fp asimd", False),
        ("", False),
    ],
)
def test_vnni_is_read_from_the_flags_of_the_cpu(tmp_path, text, found, monkeypatch):
    monkeypatch.setattr(weights.platform, "system", lambda: "Linux")
    (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    assert has_vnni(tmp_path / "cpuinfo") is found
    assert not has_vnni(tmp_path / "missing")


def test_weights_for_vnni_run_as_written_where_there_is_none(monkeypatch):
    model, metadata = described("resnet18", 1)
    documents = {vnni: convert(model, metadata, int8(), limits=LENIENT, vnni=vnni).document for vnni in ("yes", "no")}
    monkeypatch.setattr(convert_module, "has_vnni", lambda: False)
    assert weight_bits_for("cpu", "auto") == 7 and weight_bits_for("qdq", "auto") == 8
    monkeypatch.setattr(weights, "has_vnni", lambda: False)
    assert kernels_are_exact(documents["no"]) and not kernels_are_exact(documents["yes"])
    image = next(iter(generated_images(1, (48, 64)))).pixels
    with OnnxArtefact("int8", documents["yes"], *description_of(documents["yes"])) as artefact:
        assert artefact.predict(image).mask.shape == (48, 64)


def test_an_int8_export_passes_the_check_that_its_search_passed_and_repeats_to_the_byte(tmp_path):
    """The checkpoint goes in, the report judges the images that were held back, and all roundings are right."""
    model, metadata = small_network(interface=int8())
    save(tmp_path / "model.safetensors", model, metadata)
    for index, image in enumerate(generated_images(9, (48, 64), seed=3)):
        cv2.imwrite(str(tmp_path / f"{index}.png"), image.pixels[..., ::-1])
    request = Request(
        tmp_path / "model.safetensors",
        tmp_path / "out",
        int8(),
        calibrate=tmp_path,
        limits={"agreement": 0.9, "agreement_old_new": 0.8},
        rounds=0,
    )
    exported = run_export(request)
    by_key = {result.key: result for result in exported.results}
    assert by_key["outputs"].ok and by_key["quantisation"].ok and by_key["bisect"].ok
    assert all(item.passed is True for item in by_key["quantisation"].items)
    assert exported.document["conversion"]["judged_on"] == 3 and exported.document["conversion"]["judged_apart"]
    first = exported.files["model.onnx"].read_bytes()
    again = run_export(request)
    assert again.files["model.onnx"].read_bytes() == first
