from rcil.errors import ConfigError, RcilError, did_you_mean


def test_message_and_hint():
    error = ConfigError("wrong", "do this")
    assert str(error) == "wrong\ndo this"
    assert isinstance(error, RcilError)
    assert error.exit_code == 2
    assert str(RcilError("alone")) == "alone"


def test_suggestions():
    assert did_you_mean("bacth", ["batch", "abs"]) == "Did you mean 'batch'?"
    assert did_you_mean("zzz", ["b", "a"]) == "Known: a, b."
