from rcil.core.errors import ConfigError, RcilError, did_you_mean, first_line


def test_message_and_hint():
    error = ConfigError("wrong", "do this")
    assert str(error) == "wrong\ndo this"
    assert isinstance(error, RcilError)
    assert error.exit_code == 2
    assert str(RcilError("alone")) == "alone"


def test_suggestions():
    assert did_you_mean("bacth", ["batch", "abs"]) == "Did you mean 'batch'?"
    assert did_you_mean("zzz", ["b", "a"]) == "Known: a, b."


def test_the_first_line_of_what_another_library_says():
    assert first_line(ValueError("\nno\nmore")) == "no"
    assert first_line(MemoryError()) == "MemoryError"
    assert len(first_line(KeyError("x" * 1000))) == 200
