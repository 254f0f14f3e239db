"""The extras that the documentation names can be installed together, and no two packages own one import name."""

import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_ON_PYPI = "tensorrt"
"""Its libraries are on NVIDIA's own index."""
VARIANTS = re.compile(r"-(gpu|cpu|headless|contrib|nightly|directml|openvino|cu1\d)(?=-|$)")
"""What tells builds of one package apart, as in onnxruntime-gpu and opencv-contrib-python-headless."""


def documented():
    """Combinations of extras in install commands, such as `serve,cpu` in `pip install '.[serve,cpu]'`."""
    found = {names for page in PAGES for names in re.findall(r"(?:rcil|'\.)\[([a-z,]+)\]", page.read_text("utf-8"))}
    return sorted(found)


def expanded(names):
    """Requirements of extras, with those that extras name of their own project."""
    for name in names:
        for requirement in EXTRAS[name]:
            inner = re.match(r"rcil\[([a-z,]+)\]", requirement)
            yield from expanded(inner[1].split(",")) if inner else [requirement]


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


def family(name):
    return VARIANTS.sub("", name.lower().replace("_", "-"))


def rivals(names):
    """Packages of one family, which overwrite each other's files."""
    counts = Counter(map(family, set(names)))
    return sorted(name for name in set(names) if counts[family(name)] > 1)


def test_the_readme_names_what_there_is():
    assert {"train,cpu", "serve,cpu"} <= set(documented())
    for names in documented():
        assert set(names.split(",")) <= EXTRAS.keys(), names


def test_onnx_runtime_belongs_to_cpu_and_gpu_alone():
    """Any choice of extras with one of the two installs one ONNX Runtime, and serving brings no torch."""
    others = sorted(EXTRAS.keys() - {"cpu", "gpu", "dev"})
    for size in range(len(others) + 1):
        for names in itertools.combinations(others, size):
            assert not [name for name in map(name_of, expanded(names)) if family(name) == "onnxruntime"], names
    for runtime in ("cpu", "gpu"):
        wanted = [name_of(requirement) for requirement in expanded(["serve", runtime])]
        assert sum(family(name) == "onnxruntime" for name in wanted) == 1
        assert "torch" not in wanted and not rivals(wanted)
    assert "onnxruntime-gpu[cuda,cudnn]" in "".join(EXTRAS["gpu"])


def test_rivals_are_found():
    assert rivals(["onnxruntime", "onnxruntime-gpu", "numpy"]) == ["onnxruntime", "onnxruntime-gpu"]
    assert rivals(["opencv-python-headless", "opencv-contrib-python"])
    assert not rivals(["nvidia-cublas", "nvidia-cudnn-cu13", "pydantic", "pydantic-core"])


def test_no_two_installed_packages_own_one_module():
    owners = defaultdict(set)
    for distribution in metadata.distributions():
        for file in distribution.files or ():
            if len(file.parts) == 2 and file.name == "__init__.py" and file.parts[0] != "..":
                owners[file.parts[0]].add(distribution.metadata["Name"].lower())
    assert not {module: names for module, names in owners.items() if len(names) > 1}


@pytest.mark.slow
@pytest.mark.parametrize("names", sorted({*documented(), "train,gpu", "serve,gpu", "train,serve,rtx,gpu", "dev"}))
def test_documented_extras_resolve(names, tmp_path):
    kept = [name for name in names.split(",") if name != NOT_ON_PYPI]
    if not kept:
        pytest.skip("its libraries are on NVIDIA's own index")
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-build-isolation"]
    command += ["-c", str(ROOT / "constraints.txt"), "--report", str(report), f"{ROOT}[{','.join(kept)}]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ConnectionError" in done.stderr or "Temporary failure in name resolution" in done.stderr:
        pytest.skip("no network")
    assert done.returncode == 0, done.stderr
    found = [entry["metadata"]["name"] for entry in json.loads(report.read_text())["install"]]
    assert not rivals(found)
    if "train" not in names and "dev" not in names:
        assert "torch" not in found
