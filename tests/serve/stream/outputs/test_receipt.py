import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace

import pytest
from served import Threshold

from rcil_serve.stream.frames import Counts, SourceInfo, Stages
from rcil_serve.stream.outputs import receipt

SOURCE = SimpleNamespace(
    info=SourceInfo("yard.mp4", (48, 64), Fraction(25), Fraction(1, 25)), counts=Counts(written=10)
)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_does_not_change_how_long_it_took(tmp_path, monkeypatch, hours):
    clock = [datetime(2024, 1, 1, 12, tzinfo=UTC)]

    class Clock:
        @staticmethod
        def now(zone):
            return clock[0].astimezone(zone)

    monkeypatch.setattr(receipt, "datetime", Clock)
    written = receipt.Receipt(tmp_path / "r.json", Threshold(), SOURCE, "", {}, Stages(), {})
    clock[0] += timedelta(hours=hours)
    document = written.write("done")
    assert 0 <= document["seconds"] < 60 and document["frames_a_second"] > 0
    assert document["begun"].startswith("2024-01-01T12:00:00")
    assert json.loads((tmp_path / "r.json").read_text()) == document


@pytest.mark.parametrize(
    ("status", "hashed"), [("running", False), ("failed", False), ("interrupted", True), ("done", True)]
)
def test_a_run_that_failed_does_not_claim_the_file_of_an_earlier_one(tmp_path, status, hashed):
    (tmp_path / "out.mp4").write_text("of an earlier run")
    outputs = {"video": tmp_path / "out.mp4"}
    written = receipt.Receipt(tmp_path / "r.json", Threshold(), SOURCE, "", {}, Stages(), outputs)
    document = written.write(status)
    assert ("sha256" in document["outputs"]["video"]) is hashed
