import pytest
import torch
import torch.nn.functional as F
from networks import randomise
from torch import nn

from rcil.classify.heads import CosineClassifier, FoldedCosine
from rcil.classify.network import HeadSpec, build_classifier, fold_classifier, next_step, plain_classifier_twin
from rcil.core.errors import ConfigError
from rcil.model.architecture import RC, Architecture
from rcil.nn import RCConv, cost
from rcil.nn.fold import count_parameters

TWO_BRANCHES = RC()
HEADS = [HeadSpec("linear"), HeadSpec("cosine", 3)]


def small(head=HEADS[0], rc=TWO_BRANCHES, steps=(("a", "b"), ("c",))):
    torch.manual_seed(0)
    model = build_classifier(Architecture(backbone="resnet18", width=4, rc=rc), head, steps)
    randomise(model)
    return model


def images(count=2):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_scores_are_the_heads_on_the_mean_of_the_last_map(head):
    model = small(head).eval()
    outputs = model(images(), maps="after")
    mean = outputs.stages[-1].mean((2, 3))
    assert torch.allclose(outputs.embedding, mean)
    assert torch.allclose(model.head(mean[..., None, None]).flatten(1), outputs.scores)
    assert torch.equal(model(images()), outputs.scores)
    assert outputs.scores.shape == (2, 3)
    before = model(images(), maps="before").stages
    assert all(torch.allclose(F.leaky_relu(b, 0.01), a) for b, a in zip(before, outputs.stages, strict=True))


@pytest.mark.parametrize(("stride", "sides"), [(8, [56, 28, 28, 28]), (16, [56, 28, 14, 14]), (32, [56, 28, 14, 7])])
def test_the_output_stride_is_that_of_the_last_map(stride, sides):
    with torch.device("meta"):
        model = build_classifier(Architecture(backbone="resnet18").replace(output_stride=stride), HEADS[0], [["a"]])
        maps = model(torch.empty(1, 3, 224, 224), maps="after").stages
    assert [one.shape[-1] for one in maps] == sides
    dilations = {conv.dilation for conv in model.modules() if isinstance(conv, nn.Conv2d)}
    assert dilations == {8: {(1, 1), (2, 2), (4, 4)}, 16: {(1, 1), (2, 2)}, 32: {(1, 1)}}[stride]


@torch.no_grad()
def test_local_similarity_by_hand():
    head = CosineClassifier(4, [["a"], ["b"]], 2)
    x = torch.randn(3, 4)
    proxies = torch.cat([group.weight for group in head.groups]).flatten(1).view(2, 2, 4)
    cosines = torch.einsum("nc,kpc->nkp", F.normalize(x, dim=1), F.normalize(proxies, dim=2))
    expected = 10 * (torch.softmax(cosines, 2) * cosines).sum(2)
    assert torch.allclose(head(x[..., None, None]).flatten(1), expected, atol=1e-5)


@torch.no_grad()
def test_new_proxies_have_the_mean_length_and_the_direction_asked_for():
    head = CosineClassifier(4, [["a", "b"]], 2)
    starts = torch.randn(1, 2, 4)
    grown = head.extended(["c"], starts)
    lengths = head.groups[0].weight.flatten(1).norm(dim=1)
    new = grown.groups[1].weight.flatten(1)
    assert torch.allclose(new, lengths.mean() * F.normalize(starts[0], dim=1), atol=1e-6)
    assert torch.equal(grown.groups[0].weight, head.groups[0].weight)
    assert (head.names, grown.names) == (("a", "b"), ("a", "b", "c"))
    with pytest.raises(ConfigError, match="duplicate"):
        head.extended(["a"], starts)


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_folding_changes_no_score_and_leaves_what_a_plain_network_has(head):
    model = next_step(small(head)).eval()
    folded, report = fold_classifier(model)
    before, after = model(images(4)), folded(images(4))
    assert (before - after).abs().max() < 1e-4 * (before.max() - before.min())
    assert report.count("rc") == 16 and report.count("classifier") == 1
    assert not any(isinstance(part, RCConv | nn.BatchNorm2d) for part in folded.modules())
    twin = plain_classifier_twin(model)
    twin.load_state_dict(folded.state_dict())
    assert torch.equal(twin(images()), folded(images()))
    assert cost(twin, (32, 32)) == cost(folded, (32, 32))
    assert count_parameters(folded) < count_parameters(small(head, rc=None))
    assert fold_classifier(folded)[1].layers == (), "nothing is left to fold"
    assert isinstance(folded.head, FoldedCosine) == (head.kind == "cosine")


@torch.no_grad()
def test_a_later_step_starts_from_the_merged_past():
    model = small().eval()
    student, same = next_step(model).eval(), next_step(model, preserve=True).eval()
    assert student.arch.rc == RC(old="merged", frozen=True)
    assert same.arch.rc == RC(old="merged", new="merged", frozen=True)
    assert torch.allclose(same(images()), model(images()), atol=1e-5)
    assert not torch.allclose(student(images()), model(images()), atol=1e-3)
    frozen = [p for name, p in student.named_parameters() if ".old." in name]
    assert len(frozen) == 32 and not any(p.requires_grad for p in frozen)
    assert model.arch.rc == RC(), "the teacher stays as it is"


def test_a_plain_network_has_no_branches_before_and_after_a_step():
    model = small(rc=None)
    assert not any(isinstance(part, RCConv) for part in next_step(model).modules())
    assert next_step(model).arch == model.arch
