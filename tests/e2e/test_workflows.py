"""The workflows have their schema, call what exists, use fixed versions of actions, and hold few rights."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from pages import ROOT

PATHS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRUSTED = {("release", "publish"), ("docs", "deploy")}
"""Jobs that may obtain an identity token."""
every_workflow = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def steps(path):
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


def test_there_are_workflows():
    assert [path.stem for path in PATHS] == ["checks", "docs", "gpu", "release", "slow"]


def test_they_have_their_schema():
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *PATHS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@every_workflow
def test_targets_and_files_exist(path):
    text = path.read_text()
    for target in re.findall(r"\bmake (?:--\w+ )*([\w-]+)", text):
        assert re.search(rf"^{target}:", MAKEFILE, re.M), target
    for file in re.findall(r"(?:--constraint|--requirement|cache-dependency-path:) ([\w/.-]+)", text):
        assert (ROOT / file).exists(), file
    for extras in re.findall(r"\.\[([a-z,]+)\]", text):
        assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


@every_workflow
def test_actions_have_full_versions(path):
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action) for action in used), used
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_an_action_has_one_version():
    used = {step["uses"] for path in PATHS for step in steps(path) if "uses" in step}
    assert len({action.partition("@")[0] for action in used}) == len(used)


@every_workflow
def test_rights_are_few_and_time_is_limited(path):
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {"contents": "read"}
    for name, job in document["jobs"].items():
        more = {key for key, value in job.get("permissions", {}).items() if value == "write"}
        assert bool(more) == ((path.stem, name) in TRUSTED), name
        assert job["timeout-minutes"] <= 360
    assert "secrets." not in path.read_text()


def test_pythons_are_those_of_the_package():
    supported = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    for name, job in (("checks", "test"), ("release", "wheel")):
        document = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
        assert document["jobs"][job]["strategy"]["matrix"]["python"] == supported


def test_foreign_code_does_not_reach_gpus_and_releases():
    for path in PATHS:
        document = yaml.safe_load(path.read_text())
        triggers = document[True]  # YAML 1.1 reads the key `on` so
        assert ("pull_request" in triggers) == (path.stem == "checks")
        assert "pull_request_target" not in triggers
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert release["jobs"]["publish"]["if"] == "github.ref_type == 'tag'"
    assert set(release["jobs"]["publish"]["needs"]) == {"build", "wheel"}
    assert any(step.get("with", {}).get("attestations") for step in release["jobs"]["publish"]["steps"])
