from pathlib import Path

import broken_readers
import pytest

from tools.fuzz.cases import Reader
from tools.fuzz.engine import Limits, Tally, run_inputs

LIMITS = Limits(seconds=2, grown_mb=40)


def outcome(reader):
    Path("/proc/self/clear_refs").write_text("5")  # what other tests took at their peak does not count
    failures, tally = [], Tally()
    run_inputs(reader, range(6), 0, LIMITS, tally, failures.append)
    return failures, tally


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("raises", "exception", "KeyError: 'surprise'"),
        ("has_no_remedy", "no remedy", "RcilError: wrong"),
        ("hangs", "hang", "in _loop"),
        ("eats_memory", "memory", "grew by"),
    ],
)
def test_a_reader_that_misbehaves_is_found(name, kind, text):
    failures, tally = outcome(getattr(broken_readers, name)())
    assert [(failure.input, failure.kind) for failure in failures] == [(broken_readers.BAD, kind)]
    assert text in failures[0].text
    assert str(Path(__file__).parents[3]) not in failures[0].text  # machines differ
    assert tally.accepted == 3


def test_one_that_behaves():
    failures, tally = outcome(broken_readers.behaves())
    assert not failures and (tally.accepted, tally.refused) == (3, 3)
    assert tally.slowest_s > 0 and tally.current == -1


def test_every_input_finds_an_empty_folder():
    seen = []
    reader = Reader("x", lambda random: {"a/b": b"1"}, lambda folder: seen.append(sorted(folder.iterdir())))
    run_inputs(reader, range(2), 0, LIMITS, Tally(), seen.append)
    assert [[path.name for path in paths] for paths in seen] == [["a"], ["a"]]
