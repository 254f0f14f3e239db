import numpy as np
import onnx
import pytest
from delivered import deliver, save_checkpoint
from mutants.editing import changed, set_attribute
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from rcil_export.certificate.difference import first_difference, weight_differences, with_weights_of
from rcil_export.certificate.graph import canonical, with_fixed_size
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape

STEM = "backbone.stem.0"


def first_weight_difference(a, b, *options):
    return next(weight_differences(a, b, *options), None)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    interface = Interface(shape=InputShape.of(32, 32), outputs=("mask", "confidence"), runtime="cpu")
    return onnx.load(deliver(save_checkpoint(folder, "efficientnet_lite0", 1), interface).model)


def node(document, name):
    return next(node for node in document.graph.node if node.name == name)


def constant(document, name):
    return next(tensor for tensor in document.graph.initializer if tensor.name == name)


def values(document, name):
    return numpy_helper.to_array(constant(document, name)).copy()


def store(document, name, array):
    constant(document, name).CopyFrom(numpy_helper.from_array(array, name))


def add_function(d):
    d.functions.append(
        helper.make_function("own", "twice", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], d.opset_import)
    )


def add_subgraph(d):
    graph = helper.make_graph([], "inner", [], [])
    node(d, STEM).attribute.append(helper.make_attribute("body", graph))


def add_sparse(d):
    one, at = numpy_helper.from_array(np.ones(1, np.float32), "s"), numpy_helper.from_array(np.zeros(1, np.int64), "i")
    d.graph.sparse_initializer.append(helper.make_sparse_tensor(one, at, [4]))


def external(d):
    tensor = constant(d, f"{STEM}.weight")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def replaceable(d):
    tensor = constant(d, f"{STEM}.bias")
    d.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))


def doubled_name(d):
    d.graph.initializer.append(constant(d, "mean"))


def two_stores(d):
    constant(d, f"{STEM}.bias").float_data.extend([1.0, 2.0])


def reference(d):
    node(d, STEM).attribute.append(AttributeProto(name="x", type=AttributeProto.INT, ref_attr_name="y"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (add_function, "functions of its own"),
        (lambda d: d.training_info.add(), "training information"),
        (add_sparse, "sparse constants"),
        (lambda d: d.graph.quantization_annotation.add(tensor_name="x"), "quantisation annotations"),
        (add_subgraph, f"a subgraph at {STEM} (Conv), in the attribute body"),
        (reference, f"a reference to an attribute of a function at {STEM}"),
        (external, f"the constant {STEM}.weight in a file of its own"),
        (replaceable, f"the constant {STEM}.bias among its inputs"),
        (doubled_name, "two values that are called mean"),
        (two_stores, f"the values of the constant {STEM}.bias twice"),
        (
            lambda d: d.graph.output.append(helper.make_tensor_value_info("x", 1, [1])),
            "the value x, which nothing gives",
        ),
    ],
)
def test_what_could_hide_from_the_comparison_is_refused_on_both_sides(document, change, words):
    other = changed(document, change)
    assert first_difference(document, other) == (
        f"the second graph has {first_difference(other, document).removeprefix('the first graph has ')}"
    )
    assert words in first_difference(other, document)


def extra_output(d):
    d.graph.output.append(helper.make_tensor_value_info("rows", TensorProto.INT64, [1, 32, 32]))


def int64_mask(d):
    set_attribute(node(d, "mask"), "to", TensorProto.INT64)
    d.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64


def zero_branch(d):
    d.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "nought"))
    d.graph.node.extend(
        [
            helper.make_node("Mul", ["logits_nhwc", "nought"], ["nothing"], name="nothing"),
            helper.make_node("Add", ["logits_nhwc", "nothing"], ["same"], name="same"),
        ]
    )
    node(d, "logits_full").input[0] = "same"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: setattr(d, "ir_version", d.ir_version + 1), ["the IR versions are 8 and 9"]),
        (lambda d: d.opset_import.append(helper.make_opsetid("own", 1)), ["the opsets are", "own"]),
        (extra_output, ["the outputs are", "rows int64"]),
        (int64_mask, ["the outputs are mask uint8", "mask int64"]),
        (lambda d: set_attribute(node(d, STEM), "dilations", [2, 2]), [f"{STEM} (Conv)", "the attribute dilations"]),
        (
            lambda d: set_attribute(node(d, "logits_full"), "mode", "cubic"),
            ["logits_full (Resize)", "the attribute mode"],
        ),
        (lambda d: store(d, "six", values(d, "six") - 1), ["backbone.stem.1 (Clip)", "6.0", "5.0"]),
        (lambda d: store(d, "mean", values(d, "mean") + 1), ["centred (Sub)", "the constant at input 1"]),
        (lambda d: store(d, "full_size", np.array([1, 31, 32, 4])), ["logits_full (Resize)", "31"]),
        (zero_branch, ["nothing (Mul)"]),
        (lambda d: setattr(node(d, STEM), "domain", "own"), [f"{STEM} (Conv)", "the op is Conv and own.Conv"]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_settings_ends_and_wiring_are_compared(document, change, words):
    found = first_difference(document, changed(document, change))
    assert found is not None
    for word in words:
        assert word in found


def test_a_graph_that_is_not_valid_is_said_to_be(document):
    def narrow(d):
        store(d, "head.project.right.weight", values(d, "head.project.right.weight")[:, :3])

    assert "the constant at input 1 is float [16, 16, 1, 1] and" in first_difference(
        document, changed(document, narrow)
    )

    def mismatch(d):
        for name in ("head.project.left.weight", "head.project.left.bias"):
            store(d, name, values(d, name)[:8])

    broken = changed(document, mismatch)
    assert "the first graph is not valid ONNX" in first_difference(broken, broken)


def test_equal_weights_are_equal(document):
    assert first_weight_difference(document, changed(document, lambda d: None)) is None


@pytest.mark.parametrize("steps", [1, 2, 40])
def test_a_difference_is_told_in_steps_of_the_format(document, steps):
    name = f"{STEM}.weight"

    def nudge(d):
        array = values(d, name)
        for _ in range(steps):
            array[3, 1, 2, 0] = np.nextafter(array[3, 1, 2, 0], np.float32(np.inf))
        store(d, name, array)

    found = first_weight_difference(changed(document, nudge), document)
    if steps == 1:
        assert found is None
    else:
        assert (found.layer, found.op, found.input, found.constant) == (STEM, "Conv", 1, name)
        assert found.ulps == pytest.approx(steps, rel=0.6) and found.count == 1 and found.size == 32 * 27
        assert f"{STEM} (Conv), {name}: 1 of 864 numbers differ" in str(found)


def test_many_numbers_that_are_off_by_one_step_are_a_difference(document):
    name = f"{STEM}.weight"

    def nudge(d):
        array = values(d, name)
        array[:2] = np.nextafter(array[:2], np.float32(np.inf))
        store(d, name, array)

    found = first_weight_difference(changed(document, nudge), document)
    assert found.constant == name and found.count == 2 * 27 and found.ulps <= 1


def test_all_differing_layers_are_listed_in_order(document):
    names = [f"{STEM}.bias", "head.pool.0.bias", "classifier.groups.0.bias"]

    def shift(d):
        for name in reversed(names):
            store(d, name, values(d, name) + np.float32(0.01))

    assert [found.constant for found in weight_differences(changed(document, shift), document)] == names


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_a_difference(document, bad):
    def spoil(d):
        array = values(d, f"{STEM}.bias")
        array[0] = bad
        store(d, f"{STEM}.bias", array)

    found = first_weight_difference(changed(document, spoil), document)
    assert found.count == 1 and not np.isfinite(found.ulps) and found.as_document()["ulps"] == "inf"


@pytest.mark.parametrize(("kind", "bits"), [(np.float16, 10), (np.float32, 23)])
def test_every_format_has_its_own_steps(kind, bits):
    def graph(value):
        conv = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
        ends = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None) for name in "xy"
        ]
        weight = numpy_helper.from_array(np.array([value, 1.0], kind).reshape(2, 1, 1, 1), "w")
        return helper.make_model(helper.make_graph([conv], "g", ends[:1], ends[1:], [weight]))

    found = first_weight_difference(graph(1.0), graph(1.0 + 4 * 2.0**-bits))
    assert found.ulps == 4 and found.relative == pytest.approx(4 * 2.0**-bits, rel=0.01)
    assert first_weight_difference(graph(1.0), graph(1.0 + 2.0**-bits)) is None


def test_weights_of_another_graph_are_taken_over(document):
    other = changed(document, lambda d: store(d, f"{STEM}.weight", values(d, f"{STEM}.weight") * 2))
    filled = with_weights_of(document, other)
    assert filled.SerializeToString(deterministic=True) == canonical(other).SerializeToString(deterministic=True)


def test_sizes_that_are_computed_become_constants(tmp_path):
    shape = parse_shape(None, "32x32:32x48:64x64", "1:2:4")
    given = deliver(
        save_checkpoint(tmp_path, step=0), Interface(shape=shape, outputs=("mask", "logits"), runtime="cpu")
    )
    fixed = with_fixed_size(canonical(onnx.load(given.model)), (2, 32, 48, 3))
    assert not {"Shape", "Gather"} & {node.op_type for node in fixed.graph.node}
    onnx.shape_inference.infer_shapes(fixed, check_type=True, strict_mode=True)
    sizes = [numpy_helper.to_array(t).tolist() for t in fixed.graph.initializer if t.data_type == TensorProto.INT64]
    assert sizes == [[2, 32, 48, 3]], "batch, height, width and three classes"
