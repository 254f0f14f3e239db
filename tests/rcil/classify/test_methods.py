import math

import pytest
import torch

from rcil.classify.losses import heads_distillation, nca, pod_flat, pod_spatial
from rcil.classify.methods import HeadSizes, make_classify_method
from rcil.classify.network import Outputs, build_classifier
from rcil.core.errors import ConfigError
from rcil.model.architecture import RC, Architecture


def outputs(classes, seed):
    generator = torch.Generator().manual_seed(seed)
    stages = tuple(torch.randn(4, 3, 2, 2, generator=generator) for _ in range(4))
    embedding, scores = torch.randn(4, 5, generator=generator), torch.randn(4, classes, generator=generator)
    return Outputs(stages, embedding, scores, torch.tensor(2.0))


LABELS = torch.tensor([0, 1, 2, 3])


def test_the_schedule_is_the_root_of_all_over_new():
    assert HeadSizes((5, 1, 2)).schedule == pytest.approx(math.sqrt(8 / 2))


def test_eeil_is_cross_entropy_and_distillation_of_the_old_heads():
    method, new, old = make_classify_method("eeil", {"distillation": 3}), outputs(4, 0), outputs(3, 1)
    terms = method.terms(new, old, LABELS, HeadSizes((2, 1, 1)))
    assert set(terms) == {"ce", "kd"}
    assert float(terms["ce"]) == pytest.approx(float(torch.nn.functional.cross_entropy(new.scores, LABELS)))
    assert float(terms["kd"]) == pytest.approx(3 * float(heads_distillation(new.scores, old.scores, (2, 1))))
    assert set(method.terms(new, None, LABELS, HeadSizes((4,)))) == {"ce"}


def test_podnet_is_nca_and_both_pods_with_the_schedule():
    method, new, old = make_classify_method("podnet", {}), outputs(4, 0), outputs(3, 1)
    terms = method.terms(new, old, LABELS, HeadSizes((3, 1)))
    assert float(terms["nca"]) == pytest.approx(float(nca(new.scores, LABELS, new.scale, 0.6)))
    assert float(terms["pod"]) == pytest.approx(8 * 2 * float(pod_spatial(new.stages, old.stages)))
    assert float(terms["flat"]) == pytest.approx(10 * 2 * float(pod_flat(new.embedding, old.embedding)))
    assert set(method.terms(new, None, LABELS, HeadSizes((4,)))) == {"nca"}


def network(method):
    torch.manual_seed(0)
    return build_classifier(Architecture(backbone="resnet18", width=2), method.head, [["a", "b"]])


def test_imprinted_proxies_point_at_the_images_of_the_class():
    method = make_classify_method("podnet", {"proxies": 2})
    model = network(method)
    directions = torch.nn.functional.normalize(torch.randn(2, 16), dim=1)
    method.grow(model, ["c"], lambda: [directions.repeat(5, 1) * 7], torch.Generator().manual_seed(0))
    new = torch.nn.functional.normalize(model.head.groups[1].weight.detach().flatten(1), dim=1)
    assert torch.allclose((new @ directions.T).amax(1), torch.ones(2), atol=1e-5)
    assert model.names == ("a", "b", "c")


def test_what_is_tuned_on_the_memory():
    eeil, podnet = make_classify_method("eeil", {}), make_classify_method("podnet", {})
    model = network(eeil)
    assert len(eeil.set_tuning(model)) == len(list(model.parameters())) and model.training
    model = network(podnet)
    assert {id(p) for p in podnet.set_tuning(model)} == {id(p) for p in model.head.parameters()}
    assert not model.training


def test_options_of_rc_reach_the_branches():
    method = make_classify_method("eeil", {"mix": "fixed", "old_weight": 0.7, "drop": 0.2})
    assert method.branches == RC(mix="fixed", old_weight=0.7, drop=0.2)


@pytest.mark.parametrize(
    ("options", "message"), [({"distilation": 1}, "Did you mean 'distillation'"), ({"drop": 0.7}, "method eeil: drop")]
)
def test_impossible_options_are_explained(options, message):
    with pytest.raises(ConfigError, match=message):
        make_classify_method("eeil", options)
