"""Honest int8 files pass; every number that is changed is found, and its layer is named."""

import cv2
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from precision_graphs import FIRST, SECOND, small_network

from rcil.checkpoint.file import save
from rcil_export.check_files import check_files
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact
from rcil_export.checks.bisect import bisect
from rcil_export.checks.limits import limits_for
from rcil_export.checks.quantisation import layer_reference, quantisation_result, rebuild
from rcil_export.convert import convert
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import description_of, write_onnx
from rcil_export.graph.shapes import InputShape
from rcil_export.images import generated_images
from rcil_export.precision.record import CONVERSION_KEY, read_record, store_record
from rcil_export.precision.replay import replay

LENIENT = limits_for("fp32", "int8", {"agreement": 0, "agreement_old_new": 0})
FORMS = ("cpu", "tensorrt")
VALUE = f"{FIRST[:-2]}.1"
"""What `FIRST` gives behind its leaky ReLU."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve images, of which eight calibrate."""
    folder = tmp_path_factory.mktemp("images")
    for index, image in enumerate(generated_images(12, (64, 64), seed=5)):
        cv2.imwrite(str(folder / f"{index:02}.png"), image.pixels[..., ::-1])
    return folder


@pytest.fixture(scope="module")
def files(folder):
    """By form: the checkpoint and its honest int8 graph, with one conv left in fp32."""
    made = {}
    for form in FORMS:
        interface = Interface(shape=InputShape.of(64, 64), precision="int8", runtime=form)
        model, metadata = small_network(interface=interface, blocks=None)
        converted = convert(model, metadata, interface, calibrate=folder, limits=LENIENT, vnni="auto")
        exact = convert(model, metadata, interface.model_copy(update={"precision": "fp32"})).document
        record = converted.record.model_copy(update={"kept_fp32": {"head.paths.1.0": "for the test"}})
        made[form] = CheckpointArtefact("checkpoint", model, metadata), replay(exact, record)
    return made


@pytest.fixture(params=FORMS)
def file(request, files):
    return files[request.param]


def opened(document):
    return OnnxArtefact("model.onnx", document, *description_of(document))


class Unopened(OnnxArtefact):
    """A graph that nobody runs."""

    def __init__(self, document):
        self.document, self.name = document, "model.onnx"
        self.metadata, self.interface = description_of(document)


def items_of(reference, document, images=None, rebuilt=None):
    result = quantisation_result(reference, Unopened(document), images, rebuilt=rebuilt)
    return {item.key: item for item in result.items}


def failed(items):
    return {key for key, item in items.items() if item.passed is False}


def changed(document, name, change):
    """A copy in which one constant is another."""
    copy = onnx.ModelProto.FromString(document.SerializeToString())
    tensor = next(t for t in copy.graph.initializer if t.name == name)
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(change(values.copy()), values.dtype), name))
    return copy


def scale_names(document):
    """Scales of values, as the nodes read them."""
    return sorted({node.input[1] for node in document.graph.node if node.op_type == "QuantizeLinear"})


def test_an_honest_file_passes_and_its_layers_have_no_error(file, folder):
    reference, document = file
    items = items_of(reference, document, folder)
    assert all(item.passed is True for item in items.values()), items
    assert items["int8_weights"].detail["steps"] < 1 and items["int8_weights"].detail["sum"] < 0.5001
    assert items["int8_ranges"].detail["factor"] == 1
    image = next(iter(generated_images(1, (64, 64)))).pixels
    candidate = opened(document)
    report = bisect(layer_reference(reference, candidate)[0], candidate, image)
    assert report.divergence is None and max(layer.own for layer in report.layers) < 1e-6


def test_ranges_are_told_not_judged_without_images(file):
    reference, document = file
    items = items_of(reference, document)
    assert items["int8_ranges"].passed is None and "12" not in items["int8_ranges"].measured
    assert not failed(items)


@pytest.mark.parametrize("factor", [4, 2, 1.01, 0.5])
def test_a_wrong_scale_of_any_value_is_named(file, factor):
    reference, document = file
    rebuilt = rebuild(reference, opened(document))
    for name in scale_names(document)[:: 1 if factor == 2 else 7]:
        wrong = changed(document, name, lambda scale: scale * factor)
        items = items_of(reference, wrong, rebuilt=rebuilt)
        assert failed(items) == {"int8_scales"}, name
        users = [node.name for node in document.graph.node if name in node.input]
        assert any(user.startswith(items["int8_scales"].detail["layer"]) for user in users)


@pytest.mark.parametrize("factor", [4, 2, 0.5])
@pytest.mark.parametrize("same_images", [True, False])
def test_a_forged_record_does_not_hide_a_wrong_scale(files, folder, factor, same_images, tmp_path):
    """The scale, and the recorded range it follows from, are both wrong; the images tell."""
    reference, document = files["tensorrt"]
    record = read_record(document)
    images = folder
    if not same_images:
        images = tmp_path
        for image in record.images:  # the same scenes in other light
            cv2.imwrite(str(tmp_path / image.name), (cv2.imread(str(folder / image.name)) * 0.985).astype(np.uint8))
    used = [name.removesuffix("_scale") for name in scale_names(document)]
    for value in (used[0], VALUE, used[-1]):
        low, high = record.ranges[value]
        forged = record.model_copy(update={"ranges": {**record.ranges, value: (low * factor, high * factor)}})
        candidate = store_record(changed(document, f"{value}_scale", lambda scale: scale * factor), forged)
        items = items_of(reference, candidate, images)
        assert failed(items) == {"int8_ranges"} and items["int8_ranges"].detail["layer"] == value
    assert not failed(items_of(reference, document, images))


def one_more_step(steps):
    steps[0, 0, 0, 0] += 1 if steps[0, 0, 0, 0] < 100 else -1
    return steps


def nearest_steps(reference, document):
    """What rounding gives that does not look at the sum of a channel."""
    weight = dict(reference.model.named_parameters())[f"{FIRST}.weight"].detach().numpy()
    scale = next(numpy_helper.to_array(t) for t in document.graph.initializer if t.name == f"{FIRST}.weight_scale")
    return lambda _: np.rint(weight / scale[:, None, None, None])


WRONG = {
    "weight scales x1.3": (f"{FIRST}.weight_scale", lambda scale: scale * 1.3, "int8_weight_scales"),
    "one weight a step off": (f"{FIRST}.weight_quantized", one_more_step, "int8_weights"),
    "weights at their nearest steps": (f"{FIRST}.weight_quantized", None, "int8_weights"),
    "weights rounded down": (f"{FIRST}.weight_quantized", lambda steps: np.maximum(steps - 1, -127), "int8_weights"),
    "weights rounded twice": (
        f"{FIRST}.weight_quantized",
        lambda steps: np.rint(np.rint(steps * 0.5) * 2).clip(-127, 127),
        "int8_weights",
    ),
    "bias scaled": (f"{FIRST}.bias", lambda bias: bias * 1.01, "int8_bias"),
    "weights in fp32 scaled": ("head.paths.1.0.weight", lambda weight: weight * 1.01, "int8_bias"),
    "zero point of a value": (f"{VALUE}_zero_point", lambda zero: zero + 1, "int8_zero_points"),
    "zero point of weights": (f"{FIRST}.weight_zero_point", lambda zero: zero + 1, "int8_zero_points"),
    "scale is no number": (f"{VALUE}_scale", lambda scale: scale * np.nan, "int8_scales"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_number_is_found_and_its_layer_named(file, what):
    reference, document = file
    name, change, key = WRONG[what]
    change = change or nearest_steps(reference, document)
    items = items_of(reference, changed(document, name, change))
    assert key in failed(items), items
    layer = "head.paths.1.0" if name.startswith("head") else FIRST.removesuffix(".0")
    assert layer in items[key].measured


def test_scales_and_weights_that_are_wrong_together_are_found(file):
    """Steps of 1.3 times the size, and weights rounded to them: a coarser file with the same meaning."""
    reference, document = file
    coarse = changed(document, f"{FIRST}.weight_quantized", lambda steps: np.rint(steps / 1.3))
    coarse = changed(coarse, f"{FIRST}.weight_scale", lambda scale: scale * 1.3)
    items = items_of(reference, coarse)
    assert "int8_weight_scales" in failed(items) and FIRST in items["int8_weight_scales"].measured


def test_a_conv_that_is_in_fp32_against_the_record_is_found(files):
    reference, document = files["tensorrt"]
    record = read_record(document)
    exact = rebuild(reference, Unopened(document)).exact
    other = replay(exact, record.model_copy(update={"kept_fp32": {}}))
    items = items_of(reference, store_record(other, record))
    assert failed(items) == {"int8_structure"} and "head.paths.1.0" in items["int8_structure"].measured


def test_a_file_without_a_record_fails(file):
    reference, document = file
    bare = onnx.ModelProto.FromString(document.SerializeToString())
    kept = [entry for entry in bare.metadata_props if entry.key != CONVERSION_KEY]
    del bare.metadata_props[:]
    bare.metadata_props.extend(kept)
    items = items_of(reference, bare)
    assert failed(items) == {"int8_record"} and "does not record" in items["int8_record"].measured


def test_bisect_names_the_layer_of_an_int8_file(file):
    reference, document = file
    wrong = changed(document, f"{SECOND}.weight_quantized", lambda steps: np.roll(steps, 1, axis=1))
    candidate = opened(wrong)
    image = next(iter(generated_images(1, (64, 64)))).pixels
    report = bisect(layer_reference(reference, candidate)[0], candidate, image)
    assert report.divergence is not None and report.divergence.layer == SECOND
    assert sum(layer.own > report.tolerance for layer in report.layers) == 1


def test_the_command_checks_the_rounding(files, folder, tmp_path):
    reference, document = files["cpu"]
    save(tmp_path / "model.safetensors", reference.model, reference.metadata)
    write_onnx(tmp_path / "honest.onnx", document)
    name = next(name for name in scale_names(document) if name.startswith(VALUE))
    write_onnx(tmp_path / "wrong.onnx", changed(document, name, lambda scale: scale * 2))
    limits = {"agreement": 0, "agreement_old_new": 0}
    for file, right in (("honest.onnx", True), ("wrong.onnx", False)):
        results, _ = check_files(tmp_path / "model.safetensors", tmp_path / file, images=folder, limits=limits)
        by_key = {result.key: result for result in results}
        assert by_key["quantisation"].ok is right and by_key["bisect"].items[0].passed is right
    results, _ = check_files(tmp_path / "honest.onnx", tmp_path / "wrong.onnx", images=folder, limits=limits)
    told = {item.key: item for result in results for item in result.items}
    assert told["layers"].passed is None and "cannot be compared" in told["layers"].measured
    assert told["int8_record"].passed is None
