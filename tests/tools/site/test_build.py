"""The whole site builds without a warning, and nothing in it leads nowhere or loads from elsewhere."""

import subprocess
import sys

import pytest
from pages import ROOT

from tools.site.links import problems


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*.html"))) > 50
    assert problems(tmp_path) == []
