import torch
from networks import at_step, small_arch

from rcil.methods.new_rows import RowFit


def test_rows_find_the_combination_of_old_ones_that_the_labels_ask_for():
    """The new class is where the old class 2 was seen: its row must become like that class's, against background."""
    model = at_step(small_arch(), 0)
    classifier = model.classifier.extended(["new"], "balanced")
    features = torch.randn(4, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    weight, bias = model.classifier.rows()
    predicted = torch.nn.functional.conv2d(features, weight, bias).argmax(dim=1)
    labels = torch.where(predicted == 2, 3, 0)
    fit = RowFit(classifier)
    before = {name: value.clone() for name, value in classifier.named_parameters()}
    losses = [fit.learn(features, labels) for _ in range(100)]
    fit.finish()
    assert losses[-1] < 0.5 * losses[0]
    for name, value in classifier.named_parameters():
        assert torch.equal(value, before[name]) != name.startswith("groups.1"), name
    found = classifier(features).argmax(dim=1) == 3
    assert (found == (labels == 3)).float().mean() > 0.9
    combined = torch.linalg.lstsq(weight.flatten(1).T, classifier.groups[1].weight.flatten(1).T).solution
    torch.testing.assert_close(weight.flatten(1).T @ combined, classifier.groups[1].weight.flatten(1).T)
