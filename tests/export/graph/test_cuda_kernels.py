"""Exported graphs and the kernels of ONNX Runtime's CUDA provider; `test_cuda_provider.py` asks the provider itself."""

import onnx
import pytest
from classifiers import HEADS, small_classifier
from cuda_kernels import channels_last_resizes, nodes_without_kernel
from exports import described
from networks import BACKBONES
from precision_graphs import feeds_of

from rcil.classify.network import fold_classifier
from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import OPSETS, OUTPUTS, RUNTIMES, ClassifierInterface, Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.precision.half import to_half
from rcil_export.precision.int8.quantise import calibrate, quantise
from rcil_export.precision.ranges import measure_ranges

FIXED, OPEN = InputShape.of(48, 64), parse_shape(None, "33x33:64x64:129x160", "1:2:3")


@pytest.fixture(scope="module", params=["resnet18", "efficientnet_lite0"])
def network(request):
    model, metadata = described(request.param, 1)
    return fold(model)[0], metadata


def graph(network, **interface):
    return to_onnx(*network, Interface(**{"shape": FIXED, "outputs": OUTPUTS, **interface}))


@pytest.mark.parametrize("opset", range(OPSETS[0], OPSETS[1] + 1))
def test_every_node_has_a_cuda_kernel(network, opset):
    for shape in (FIXED, OPEN):
        missing = nodes_without_kernel(graph(network, opset=opset, shape=shape))
        # From opset 22 on MaxPool, which ResNets alone have, runs on the CPU: the provider's kernel stops at 12.
        resnet = network[1].architecture.backbone == "resnet18"
        assert missing == (["MaxPool max_pool2d"] if opset >= 22 and resnet else [])


@pytest.mark.parametrize("backbone", sorted(set(BACKBONES) - {"resnet18", "efficientnet_lite0"}))
def test_so_has_every_backbone(backbone):
    model, metadata = described(backbone, 1)
    assert not nodes_without_kernel(graph((fold(model)[0], metadata)))


def test_so_have_fp16_and_int8(network):
    document = graph(network)
    feeds = feeds_of(document, 1)
    half = to_half(document, "fp16", measure_ranges(document, feeds))[0]
    int8 = quantise(document, calibrate(document, feeds)).without(())
    assert not nodes_without_kernel(half) and not nodes_without_kernel(int8)


def test_bf16_has_not(network):
    """Why bf16 is refused there; were this list to become empty, the refusal should go."""
    missing = {line.split()[0] for line in nodes_without_kernel(to_half(graph(network, opset=22), "bf16", None)[0])}
    activation = "Clip" if network[1].architecture.backbone == "efficientnet_lite0" else "LeakyRelu"
    assert {activation, "ArgMax", "GlobalAveragePool"} <= missing


@pytest.mark.parametrize("shape", [FIXED, OPEN], ids=["fixed", "open"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_only_the_form_for_cpus_resizes_channels_last(network, runtime, shape):
    found = channels_last_resizes(graph(network, runtime=runtime, shape=shape))
    assert found == (["logits_full"] if runtime == "cpu" else [])


def test_the_default_is_right_everywhere(network):
    default = to_onnx(*network, Interface(shape=FIXED))
    planes = to_onnx(*network, Interface(shape=FIXED, runtime="tensorrt"))
    assert not channels_last_resizes(default)
    del default.metadata_props[:], planes.metadata_props[:]
    assert default == planes


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("opset", [18, 21])
def test_so_have_classifiers(head, opset):
    model, metadata = small_classifier(head)
    interface = ClassifierInterface(shape=InputShape.of(32, 32, 2), opset=opset)
    assert not nodes_without_kernel(to_onnx(fold_classifier(model)[0], metadata, interface))


def test_a_type_without_kernel_is_found(network):
    """The lint can fail: ArgMax of 64-bit integers has no kernel."""
    document = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (int64[1,3,4,4] x) => (int64[1,4,4] y) {'
        " y = ArgMax<axis=1, keepdims=0>(x) }"
    )
    document.graph.node[0].name = "largest"
    assert nodes_without_kernel(document) == ["ArgMax largest"]
