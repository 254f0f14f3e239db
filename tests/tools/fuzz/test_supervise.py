import broken_readers
import pytest

from tools.fuzz.engine import Limits
from tools.fuzz.supervise import supervise


@pytest.mark.parametrize(("name", "kind"), [("crashes", "crash"), ("hangs_for_good", "hang")])
def test_the_run_goes_on_behind_an_input_that_ends_the_process(name, kind):
    result = supervise(f"broken_readers:{name}", range(6), 0, Limits(seconds=0.3))
    assert [(failure.input, failure.kind) for failure in result.failures] == [(broken_readers.BAD, kind)]
    assert result.inputs == 6
    assert result.accepted + result.refused == 5
    assert result.as_document()["failures"][0]["kind"] == kind
