"""Full-size networks after two continual steps: every certificate item, in fp32 and fp16."""

import pytest
import torch
from networks import randomise

from rcil.architecture import Architecture
from rcil.checkpoint.file import save
from rcil.checkpoint.metadata import Metadata, class_table
from rcil.nn import begin_step, build
from rcil_export.interface import Interface
from rcil_export.run import Request, run_export
from rcil_export.shapes import InputShape

NAMES = [[f"class {i}" for i in range(19)], ["forklift"], ["pallet"]]


@pytest.fixture(params=["resnet101", "resnet18", "efficientnet_lite0"])
def checkpoint(request, tmp_path):
    pytest.importorskip("tensorrt_rtx")
    torch.manual_seed(0)
    model = build(Architecture(backbone=request.param), NAMES[:1])
    for step in NAMES[1:]:
        with torch.no_grad():
            model.train()(torch.randn(2, 3, 128, 128))
        model = begin_step(model, step, rows="balanced")
    path = tmp_path / "step2.safetensors"
    save(path, model.eval(), Metadata(architecture=model.arch, classes=class_table(NAMES), step=2))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_all_items_pass(checkpoint, tmp_path, precision):
    interface = Interface(shape=InputShape.of(512, 512), precision=precision, runtime="tensorrt")
    # Random weights decide between classes by next to nothing, so fp16 flips more pixels than in a trained network.
    limits = {"agreement": 0.98, "agreement_old_new": 0.9} if precision == "fp16" else {}
    exported = run_export(
        Request(
            checkpoint,
            tmp_path / "out",
            interface,
            targets=("onnx", "engine"),
            gpus=("sm86",),
            rounds=10,
            limits=limits,
        )
    )
    items = {item.key: item for result in exported.results for item in result.items}
    assert exported.ok, {key: item.measured for key, item in items.items() if item.passed is False}
    for key in ("graph", "parameters", "macs", "engine_fp32", f"engine_{precision}", "error", "agreement", "layers"):
        assert items[key].passed is True, key
    assert items["agreement"].detail["agreement"] >= (1 if precision == "fp32" else 0.98)


def test_random_statistics_do_not_hide_a_wrong_item(tmp_path):
    """The same on a small network with difficult norms, in the default run."""
    from exports import described

    model, metadata = described("efficientnet_lite0", 2)
    randomise(model.head, 3)
    save(tmp_path / "step2.safetensors", model, metadata)
    interface = Interface(shape=InputShape.of(64, 64))
    exported = run_export(Request(tmp_path / "step2.safetensors", tmp_path / "out", interface, rounds=0))
    passed = {item.key: item.passed for result in exported.results for item in result.items}
    assert passed["graph"] and passed["parameters"] and passed["macs"] and passed["layers"]
