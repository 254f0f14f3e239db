import contextlib
import logging

import pytest

from rcil.demo import programs

pytest.importorskip("playwright")


def test_a_browser_that_does_not_start_costs_the_screenshot_only(tmp_path, monkeypatch, caplog):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_serving", lambda *_: contextlib.nullcontext("http://127.0.0.1:9"))
    with caplog.at_level(logging.WARNING, "rcil"):
        assert not programs.screenshot_page(tmp_path / "page.png", tmp_path / "a.jpg", tmp_path, tmp_path)
    assert "no screenshot of the page" in caplog.text
    assert not (tmp_path / "page.png").exists()
