import torch
from exports import described
from intermediates import intermediates

from rcil.nn import fold


def test_places_of_a_network_and_of_its_folded_form_have_the_same_names():
    model, _ = described("resnet18", 1)
    x = torch.randn(1, 3, 33, 33)
    both, one = intermediates(model, x), intermediates(fold(model)[0], x)
    shared = {name for name in both.keys() & one.keys() if both[name].shape == one[name].shape}
    assert {"add", "add_4", "leaky_relu", "cat", "pool", "backbone.stages.1.0.conv2"} <= shared
    for name in shared - {"head.project.left", "head.project.right", "add_5"}:  # the norm after their sum is folded
        scale = both[name].abs().max()
        assert (both[name] - one[name]).abs().max() <= 1e-4 * scale, name


def test_values_are_kept_as_they_were_before_activations_overwrote_them():
    model, _ = described("resnet18", 0)
    values = intermediates(fold(model)[0], torch.randn(1, 3, 33, 33))
    assert values["backbone.stem.0"].min() < -0.1
    assert torch.equal(torch.nn.functional.leaky_relu(values["backbone.stem.0"], 0.01), values["backbone.stem.1"])
