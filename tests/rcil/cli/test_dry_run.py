import json

import pytest

from rcil.cli.dry_run import DryRun, require_place
from rcil.core.errors import RcilError


def test_in_words_and_as_json(capsys):
    plan = DryRun({"a": "two"}, {"b": ""}, {"time": "1 s"})
    plan.show(as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["would", "read", "a:", "two"], ["would", "write", "b"], ["needs", "about", "time:", "1", "s"]]
    plan.show(as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document == {"dry_run": True, "reads": {"a": "two"}, "writes": {"b": ""}, "needs": {"time": "1 s"}}


def test_places(tmp_path, monkeypatch):
    require_place(tmp_path / "new" / "file")
    (tmp_path / "file").touch()
    require_place(tmp_path / "file")
    with pytest.raises(RcilError, match="file is not a folder"):
        require_place(tmp_path / "file" / "inside")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(RcilError, match="no permission"):
        require_place(tmp_path / "new")
