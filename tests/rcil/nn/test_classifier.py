import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.nn.classifier import IncrementalClassifier


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return IncrementalClassifier(6, [["background", "a"], ["b"]])


def test_rows_are_named_in_order(classifier):
    assert classifier.names == ("background", "a", "b")
    assert classifier(torch.randn(2, 6, 3, 4)).shape == (2, 3, 3, 4)


def test_background_start_copies_the_background_row(classifier):
    grown = classifier.extended(["c", "d"], "background")
    logits = grown(torch.randn(1, 6, 3, 3))
    assert torch.equal(logits[:, 0], logits[:, 3])
    assert torch.equal(logits[:, 0], logits[:, 4])
    assert grown.names == ("background", "a", "b", "c", "d")
    assert classifier.names == ("background", "a", "b"), "the original stays"


def test_balanced_start_keeps_old_probabilities_and_shares_the_background(classifier):
    x = torch.randn(1, 6, 3, 3)
    before = classifier(x).softmax(1)
    after = classifier.extended(["c", "d"], "balanced")(x).softmax(1)
    torch.testing.assert_close(after[:, 1:3], before[:, 1:])
    for row in (0, 3, 4):
        torch.testing.assert_close(after[:, row], before[:, 0] / 3)


def test_random_start_changes_no_old_row(classifier):
    x = torch.randn(1, 6, 3, 3)
    grown = classifier.extended(["c"], "random")
    assert torch.equal(grown(x)[:, :3], classifier(x))
    assert not torch.equal(grown(x)[:, 3], classifier(x)[:, 0])


def test_fold_is_one_conv_with_the_same_rows(classifier):
    x, folded = torch.randn(1, 6, 3, 3), classifier.fold()
    assert len(folded.groups) == 1
    assert folded.groups[0].out_channels == 3
    torch.testing.assert_close(folded(x), classifier(x))


def test_set_rows_round_trip(classifier):
    weight, bias = classifier.rows()
    classifier.set_rows(weight.flip(0), bias.flip(0))
    again = classifier.rows()
    assert torch.equal(again[0], weight.flip(0))
    assert torch.equal(again[1], bias.flip(0))


@pytest.mark.parametrize(
    ("names", "message"), [(["background", "background"], "duplicate"), ([" "], "missing"), ([], "missing")]
)
def test_bad_names(names, message):
    with pytest.raises(ConfigError, match=message):
        IncrementalClassifier(4, [names])


def test_extending_by_a_known_or_no_class_is_an_error(classifier):
    with pytest.raises(ConfigError, match="'a'"):
        classifier.extended(["a"], "background")
    with pytest.raises(ConfigError, match="at least one"):
        classifier.extended([], "background")
