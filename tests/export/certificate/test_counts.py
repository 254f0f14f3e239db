import pytest
import torch
from networks import BACKBONES, LITE, small_arch

from rcil.classify.network import HeadSpec, build_classifier
from rcil.model.architecture import Architecture
from rcil.model.metadata import ClassifierMetadata, Metadata, class_table
from rcil.nn import build, cost
from rcil_export.certificate.counts import deployed_counts

NAMES = [["background", "a"], ["b", "c", "d"]]
V3PLUS = {"head": "deeplabv3plus", "skip_width": 3}
SIZES = [(512, 512), (193, 257), (33, 48)]


def counted(arch, size):
    with torch.device("meta"):
        model = build(arch.replace(rc=None, folded=True), NAMES).eval()
    return cost(model, size)


@pytest.mark.parametrize(
    ("backbone", "head", "stride", "size"),
    [
        *((backbone, "deeplabv3", 16, SIZES[1]) for backbone in dict.fromkeys((*BACKBONES, *LITE))),
        *((backbone, "deeplabv3", 8, size) for backbone in ("resnet50", "efficientnet_lite0") for size in SIZES),
        *((backbone, "deeplabv3plus", 8, SIZES[2]) for backbone in ("resnet18", "efficientnet_lite1")),
        *((backbone, "deeplabv3plus", 16, SIZES[1]) for backbone in ("resnet101", *LITE)),
    ],
)
def test_torch_counts_the_same(backbone, head, stride, size):
    arch = Architecture(backbone=backbone, head=head, output_stride=stride)
    expected, found = counted(arch, size), deployed_counts(_metadata(arch), size)
    assert (found.parameters, found.macs, found.size) == (expected.parameters, expected.macs, size)


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 5, "blocks": (1, 3, 2, 4)},
        {"head_width": 7},
        V3PLUS,
        {"pool_window": 2},
        {"pool_window": 32},
        {"rc": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("backbone", ["resnet18", "resnet50"])
def test_so_it_does_for_other_shapes(backbone, changes):
    arch = small_arch(backbone).replace(**changes)
    expected, found = counted(arch, (65, 81)), deployed_counts(_metadata(arch), (65, 81))
    assert (found.parameters, found.macs) == (expected.parameters, expected.macs)


@pytest.mark.parametrize("stride", [8, 16, 32])
@pytest.mark.parametrize("head", [HeadSpec("linear"), HeadSpec("cosine", 3)], ids=lambda head: head.kind)
def test_and_for_classifiers(head, stride):
    arch = small_arch("resnet18").replace(output_stride=stride)
    described = ClassifierMetadata(
        architecture=arch, classes=class_table(NAMES), step=1, head=head.kind, proxies=head.proxies, size=32
    )
    with torch.device("meta"):
        model = build_classifier(arch.replace(rc=None, folded=True), head, NAMES).eval()
    expected, found = cost(model, (32, 40)), deployed_counts(described, (32, 40))
    assert (found.parameters, found.macs) == (expected.parameters, expected.macs)


def test_a_network_by_hand():
    """One block in each stage, width 1, one class: few enough to count on paper."""
    arch = Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=1, head_width=1)
    found = deployed_counts(Metadata(architecture=arch, classes=class_table([["background"]])), (32, 32))
    stem = 3 * 49 + 1
    stages = [
        (9 + 1) + (9 + 1),
        (2 + 2) + (18 + 2) + (36 + 2),
        (8 + 4) + (72 + 4) + (144 + 4),
        (32 + 8) + (288 + 8) + (576 + 8),
    ]
    head = (8 + 1) + 3 * (72 + 1) + (8 + 1) + (4 + 1) + 1
    assert found.parameters == stem + sum(stages) + head + (1 + 1)


def _metadata(arch):
    return Metadata(architecture=arch, classes=class_table(NAMES), step=1)
