"""docs/dependencies.md speaks of everything that is installed, in the version that is installed."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
ROWS = {name.lower(): version for name, version in re.findall(r"^\| `([^`]+)` \| (\S+) \|", PAGE, flags=re.MULTILINE)}


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()


def required():
    """Names of run-time packages, and of those for development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: set(map(name_of, wanted)) for extra, wanted in project["optional-dependencies"].items()}
    development = (extras.pop("dev") | extras.pop("docs")) - {"rcil"}
    return set(map(name_of, project["dependencies"])).union(*extras.values()) - {"rcil"}, development


def test_the_table_has_every_package_and_no_other():
    assert set(ROWS) == required()[0]


def test_the_versions_are_those_that_were_tried():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", text, flags=re.MULTILINE)}
    assert {name: pinned.get(name, "–") for name in ROWS} == ROWS


def test_tools_are_named_too():
    named = {name.lower() for name in re.findall(r"`([^`]+)`", PAGE.partition("## In development")[2])}
    assert required()[1] <= named
