"""The files that run `rcil-serve` unattended."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from rcil_serve.cli.app import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "serve" / "deploy"
ANALYZE = shutil.which("systemd-analyze")


def environment():
    """The variables of the example, as systemd reads them."""
    lines = (DEPLOY / "gate.env").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value.removeprefix("'").removesuffix("'") for name, _, value in pairs}


def test_the_example_is_a_command_that_is_known():
    name, *words = shlex.split(environment()["RCIL_ARGS"])
    command = get_command(app).commands[name]
    parsed = command.make_context(name, words, resilient_parsing=False).params
    assert parsed["rule"] == ["forklift covers more than 5 % of dock for 2 s"]
    assert parsed["view"] == "0.0.0.0:8080"


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    """With a program that exists on this machine."""
    text = (DEPLOY / "rcil-serve@.service").read_text()
    unit = tmp_path / "rcil-serve@.service"
    unit.write_text(text.replace("/opt/rcil/bin/rcil-serve", sys.executable))
    done = subprocess.run([ANALYZE, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if "rcil-serve" in line]
    assert about == [] and done.returncode == 0, done.stderr


def test_the_container_copies_what_exists_and_installs_what_is_named():
    text = (DEPLOY / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert copied and all((ROOT / word).exists() for word in copied)
    extras = re.search(r"\[(serve),\$\{EXTRA\}\]", text)
    project = (ROOT / "pyproject.toml").read_text()
    assert extras and all(re.search(rf"^{name} = \[", project, re.MULTILINE) for name in ("serve", "cpu", "gpu"))
    readme, licence = re.search(r'readme = "(.*)"', project)[1], "LICENSE"
    assert {readme, licence, "pyproject.toml", "constraints.txt"} <= set(copied), "the build needs them"
