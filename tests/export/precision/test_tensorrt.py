"""TensorRT-RTX takes and builds every precision; no GPU is needed for that."""

import pytest
from precision_graphs import feeds_of, small_graph

from rcil_export.engine.callbacks import logger_of
from rcil_export.precision.half import to_half
from rcil_export.precision.int8.quantise import calibrate, quantise
from rcil_export.precision.ranges import measure_ranges

trt = pytest.importorskip("tensorrt_rtx")


def converted(precision, opset):
    document = small_graph(size=32, opset=opset, outputs=("mask", "confidence", "logits"))
    feeds = feeds_of(document, 1)
    if precision == "int8":
        return quantise(document, calibrate(document, feeds)).without(["backbone.stages.1.0.conv1.0"])
    return to_half(document, precision, measure_ranges(document, feeds))[0]


@pytest.mark.parametrize(("precision", "opset"), [("fp16", 18), ("bf16", 23), ("int8", 18), ("int8", 23)])
def test_an_engine_can_be_built(precision, opset):
    logger = logger_of(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    document = converted(precision, opset)
    assert parser.parse(document.SerializeToString()), [parser.get_error(i).desc() for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None and plan.nbytes > 10_000
