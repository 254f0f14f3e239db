import os
import signal
from pathlib import Path

import pytest

from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.shutdown import raise_source_errors, sigterm_as_interrupt


def test_a_kill_is_an_interrupt_inside_only():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("live", "gone", "problems", "words"),
    [
        (False, "", [], None),
        (False, "", ["cut off", "other"], "cut off"),
        (True, "", ["broke off"], None),
        (True, "camera is gone", ["broke off"], "camera is gone"),
    ],
)
def test_only_what_matters_is_an_error(live, gone, problems, words):
    receipt = {"frames": {"gone": gone, "problems": problems}, "source": {"live": live}}
    if words is None:
        raise_source_errors(receipt, Path("r.json"), "written")
        return
    with pytest.raises(SourceError, match=words) as caught:
        raise_source_errors(receipt, Path("r.json"), "written")
    assert caught.value.hint == "All readable frames were written; see r.json."
