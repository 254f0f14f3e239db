import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcil.core.documents import parse_json, parse_yaml, yaml_lines

LAUGHS = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])


def test_documents_are_read():
    assert parse_json(b'{"a": [1, null]}') == {"a": [1, None]}
    assert parse_yaml("a: &x [1, 2]\nb: *x\nc: 2001-12-14") is not None
    assert parse_yaml("") is None


@pytest.mark.parametrize(
    "text",
    [
        *("a: [", "\t", "!!python/object/apply:os.system [ls]", "*nobody"),
        *("2001-13-45", "2001-12-14t21:59:43-99:00", "!!timestamp x", "9" * 5000),
        *("!!int x", "!!int ''", "!!float x", "!!bool x"),
        *("[" * 2000, "[" * 2000 + "]" * 2000, '{"a":' * 100 + "1" + "}" * 100),
        *("&a [*a]", "&a {b: *a}", LAUGHS),
    ],
)
def test_what_is_wrong_with_yaml_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff"])
def test_what_is_wrong_with_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)


@given(st.text(alphabet="ab01:-[]{}&*!?|>'\"#, \n\t", max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_document_or_a_value_error(text):
    try:
        parse_yaml(text)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_json, '{"a": "\\ud800"}'),
        (parse_json, b'["\\uDFFF\\ud800"]'),
        (parse_json, '{"\\udead": 1}'),
        (parse_yaml, 'names: ["\\ud800"]'),
    ],
)
def test_half_characters_are_refused(parse, text):
    with pytest.raises(ValueError, match="lone surrogate"):
        parse(text)


def test_whole_characters_may_be_escaped():
    assert parse_json('["\\ud83d\\ude00"]') == ["\U0001f600"]
    assert parse_yaml('{2020-01-01: 1, "\\\\ud800": 2}')


def test_lines_of_keys_and_entries():
    text = "a: 1\nb:\n  - x\n  - {c: 2}\n\nd: {e: {f: 3}}\n"
    lines = {("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 1): 4, ("b", 1, "c"): 4}
    assert yaml_lines(text) == {**lines, ("d",): 6, ("d", "e"): 6, ("d", "e", "f"): 6}
    assert yaml_lines("") == {}
