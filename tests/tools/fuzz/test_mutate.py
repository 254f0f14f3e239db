import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.fuzz.cases import case_of
from tools.fuzz.mutate import as_json, damaged, grown_wrong, odd_value
from tools.fuzz.readers import MODULES, open_reader
from tools.fuzz.seeds import chunks_of, joined, png

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(TREES)
@settings(max_examples=50, deadline=None)
def test_whole_documents_are_json(tree):
    assert json.loads(as_json(tree)) == tree


@given(TREES, st.integers())
@settings(max_examples=50, deadline=None)
def test_mistakes_leave_the_original_alone(tree, seed):
    before = json.dumps(tree)
    as_json(grown_wrong(Random(seed), tree))
    assert json.dumps(tree) == before


@given(st.binary(max_size=50), st.integers())
@settings(max_examples=50, deadline=None)
def test_any_bytes_can_be_damaged(data, seed):
    assert damaged(Random(seed), data, (b"", b"other")) == damaged(Random(seed), data, (b"", b"other"))


def test_all_kinds_of_mistakes_occur():
    text = b" ".join(as_json(odd_value(Random(seed))) for seed in range(400))
    for sign in (b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"[" * 2000, b"\\ud800", b"x" * 10_000, b"null", b"-1"):
        assert sign in text, sign[:20]


def test_a_png_is_taken_apart_and_put_together():
    assert joined(chunks_of(png())) == png()


@pytest.mark.parametrize("name", MODULES)
def test_inputs_follow_from_their_number(name):
    reader = open_reader(name)
    cases = [case_of(reader, 0, number) for number in range(20)]
    assert cases == [case_of(reader, 0, number) for number in range(20)]
    assert len({str(case) for case in cases}) > 10
    assert cases != [case_of(reader, 1, number) for number in range(20)]
