import json

import numpy as np
import pytest

from rcil.core.errors import CheckpointError
from rcil_serve.watch.shares import Baseline, Reference, read_baseline, write_baseline


def test_means_of_the_first_seconds():
    reference = Reference(1.0)
    for time, share in ((5.0, 0.1), (5.5, 0.3), (6.0, 0.9), (7.0, 0.9)):
        assert reference.shares is None or time > 6
        reference.add(time, ["a"], np.array([share]))
    assert reference.shares == {"a": pytest.approx(0.2)}
    assert (reference.frames, reference.length) == (2, 0.5)


def test_restart_forgets_only_what_is_not_complete():
    reference = Reference(1.0)
    reference.add(0.0, ["a"], np.array([0.5]))
    reference.restart()
    assert reference.frames == 0 and reference.gathered == {}
    reference.add(1.0, ["a", "b"], np.array([0.1, 0.2]))
    reference.add(2.0, ["a", "b"], np.array([0.9, 0.9]))
    reference.restart()
    assert reference.shares == {"a": 0.1, "b": 0.2}


def test_files_come_back_and_others_are_refused(tmp_path):
    baseline = Baseline(source="yard.mp4", seconds=1.5, frames=3, shares={"a": 0.25})
    write_baseline(tmp_path / "b.json", baseline)
    assert read_baseline(tmp_path / "b.json") == baseline
    document = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(document | {"shares": {"a": 2}}))
    with pytest.raises(CheckpointError, match=r"does not describe a baseline: shares\.a"):
        read_baseline(tmp_path / "b.json")
    with pytest.raises(CheckpointError, match="cannot read"):
        read_baseline(tmp_path / "none.json")
