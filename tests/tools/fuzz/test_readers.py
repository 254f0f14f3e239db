import pytest

from tools.fuzz.engine import Limits, Tally, run_inputs
from tools.fuzz.readers import MODULES, open_reader


def failures_of(name, numbers):
    failures, tally = [], Tally()
    run_inputs(open_reader(name), numbers, 0, Limits(), tally, failures.append)
    assert tally.accepted + tally.refused + len(failures) == len(numbers)
    assert tally.accepted and tally.refused, "inputs must be neither all right nor all wrong"
    return [f"input {failure.input}: {failure.kind}\n{failure.text}" for failure in failures]


@pytest.mark.parametrize("name", MODULES)
def test_no_input_surprises_a_reader(name):
    assert not failures_of(name, range(300))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_no_input_of_many_surprises_a_reader(name):
    assert not failures_of(name, range(300, 4000))
