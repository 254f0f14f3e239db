import base64
import json

import numpy as np
import pytest
from pydantic import ValidationError

from rcil.model.features import FeatureStatistics, RidgeSums
from rcil.model.metadata import Metadata, class_table


def statistics(classes=2, width=3):
    numbers = np.random.default_rng(0)
    means, deviations = (numbers.uniform(0, 3, (classes, width)).astype(np.float32) for _ in range(2))
    return FeatureStatistics.of(range(1, classes + 1), means, deviations, np.eye(width, dtype=np.float32))


def described(features):
    document = {"architecture": {"backbone": "resnet18"}, "classes": class_table([["background", "ball"]])}
    return Metadata.model_validate({**document, "features": features})


def test_arrays_are_what_was_stored():
    means = np.array([[0.5, -70000.0, 2.25]], np.float32)
    stored = FeatureStatistics.of([4], means, means * 0 + 1, np.eye(3, dtype=np.float32))
    found, deviations, correlation = stored.arrays()
    np.testing.assert_array_equal(found, [[0.5, -65504.0, 2.25]])  # the largest number of half precision
    np.testing.assert_array_equal(deviations, [[1, 1, 1]])
    np.testing.assert_array_equal(correlation, np.eye(3))


def test_only_checkpoints_have_them():
    metadata = described(statistics())
    assert "features" not in metadata.model_dump() and "features" not in json.loads(metadata.model_dump_json())
    assert Metadata.model_validate_json(metadata.checkpoint_json()).features == statistics()
    assert described(None).checkpoint_json() == described(None).model_dump_json()


def test_those_of_fewer_classes_are_not_stored():
    """As where somebody adds a class to the description of a model."""
    grown = described(statistics()).model_copy(update={"classes": class_table([["background", "ball", "cone"]])})
    assert Metadata.model_validate_json(grown.checkpoint_json()).features is None


@pytest.mark.parametrize("change", [{"means": "AAAA"}, {"means": "*"}, {"width": 4}, {"counts": [1]}, {"width": 10**9}])
def test_damaged_statistics_are_an_error(change):
    with pytest.raises(ValidationError):
        described({**statistics().model_dump(), **change})


def with_sums(classes=2, width=3):
    numbers = np.random.default_rng(0).normal(size=(9, width + 1))
    sums = RidgeSums.of(numbers.T @ numbers, numbers.T @ np.ones((9, classes)))
    return statistics(classes, width).model_copy(update={"ridge": sums})


def test_sums_of_a_ridge_regression_are_kept_exactly():
    numbers = np.random.default_rng(0).normal(size=(9, 4))
    stored = described(with_sums()).checkpoint_json()
    products, targets = Metadata.model_validate_json(stored).features.ridge.arrays()
    np.testing.assert_array_equal(np.triu(products), np.triu(numbers.T @ numbers))
    np.testing.assert_array_equal(products, products.T)
    np.testing.assert_array_equal(targets, numbers.T @ np.ones((9, 2)))
    assert "ridge" not in described(statistics()).checkpoint_json()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["products", "targets"])
def test_damaged_sums_are_an_error(name, bad):
    good = with_sums().model_dump()
    for text in ("AAAA", "*", base64.b64encode(np.full(len(good["ridge"][name]) * 3 // 32, bad).tobytes()).decode()):
        with pytest.raises(ValidationError):
            described({**good, "ridge": {**good["ridge"], name: text}})
    large = base64.b64encode(np.full(len(good["ridge"][name]) * 3 // 32, 1.7e308).tobytes()).decode()
    described({**good, "ridge": {**good["ridge"], name: large}})
