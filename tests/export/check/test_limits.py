from itertools import pairwise

import pytest

from rcil.errors import ConfigError
from rcil_export.check.limits import DEFAULTS, limits_for, parse_limits
from rcil_export.interface import PRECISIONS


def test_the_less_exact_of_two_decides():
    assert limits_for("fp32", "fp16") == DEFAULTS["fp16"]
    assert limits_for("int8", "fp32") == DEFAULTS["int8"]


def test_required_defaults():
    assert (DEFAULTS["fp32"].agreement, DEFAULTS["fp32"].tie, DEFAULTS["fp32"].error) == (1, 1e-5, 1e-4)
    assert DEFAULTS["fp16"].agreement == 0.999


def test_fewer_bits_are_allowed_more():
    ordered = [DEFAULTS[precision] for precision in PRECISIONS]
    for finer, coarser in pairwise(ordered):
        assert finer.agreement > coarser.agreement
        assert finer.miou_drop < coarser.miou_drop
        assert finer.node < coarser.node or coarser is DEFAULTS["int8"]  # which is compared with its own rounding


def test_user_changes_are_kept_and_the_rest_stays():
    changes = parse_limits("agreement=0.995, miou_drop=1")
    assert changes == {"agreement": 0.995, "miou_drop": 1}
    limits = limits_for("fp32", "fp16", changes)
    assert (limits.agreement, limits.miou_drop, limits.error) == (0.995, 1, DEFAULTS["fp16"].error)


def test_nothing_changes_nothing():
    assert parse_limits("") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agrement=1", "Did you mean 'agreement'"),
        ("agreement", "needs a number"),
        ("agreement=much", "not 'much'"),
        ("agreement=99.5", "less than or equal to 1"),
        ("error=-1", "greater than 0"),
        ("miou_drop=nan", "miou_drop=nan is not possible"),
    ],
)
def test_wrong_limits_are_explained(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_limits(text)
