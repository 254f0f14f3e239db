"""Lock files hold everything that is required, in the versions that were tried, with hashes and without addresses."""

import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from tools.lock import FOLDER, LINK, LOCKS, ROOT, Pin, requirements, usable

PINNED = {
    Requirement(line).name.lower().replace("_", "-"): line.partition("==")[2]
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
}
every_lock = pytest.mark.parametrize("name", LOCKS)


def entries(name):
    text = (FOLDER / f"{name}.txt").read_text().replace(" \\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.partition("==")[0]: line.partition("==")[2].split() for line in lines}


@every_lock
def test_it_holds_all_that_the_extras_require(name):
    locked = entries(name)
    for text in requirements(LOCKS[name].split(",")):
        wanted = Requirement(text)
        version = locked[wanted.name.lower().replace("_", "-")][0]
        assert wanted.specifier.contains(version, prereleases=True), text


@every_lock
def test_versions_are_those_that_were_tried(name):
    locked = {package: version for package, (version, *_) in entries(name).items()}
    assert {package: PINNED[package] for package in locked if package in PINNED} == {
        package: version for package, version in locked.items() if package in PINNED
    }
    assert len(locked.keys() & PINNED.keys()) > 10


@every_lock
def test_there_are_hashes_and_no_addresses(name):
    for package, (_, *hashes) in entries(name).items():
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), package
    text = (FOLDER / f"{name}.txt").read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text and "@" not in text


def test_serving_has_no_torch_and_gpus_have_cuda():
    assert "torch" not in entries("serve")
    assert "torch" in entries("train") and not any(package.startswith("nvidia-") for package in entries("train"))
    gpu = entries("gpu")
    assert "onnxruntime-gpu" in gpu and "onnxruntime" not in gpu and any(p.startswith("nvidia-") for p in gpu)


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("av-1.0-cp311-abi3-manylinux_2_28_x86_64.whl", True),
        ("av-1.0-cp314-abi3-manylinux_2_28_x86_64.whl", False),
        ("av-1.0-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", True),
        ("av-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl", False),
        ("av-1.0-cp310-cp310-manylinux_2_28_x86_64.whl", False),
        ("av-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("av-1.0-cp312-cp312-win_amd64.whl", False),
        ("av-1.0-py2.py3-none-any.whl", True),
        ("av-1.1-py3-none-any.whl", False),
        ("av-1.0.tar.gz", False),
    ],
)
def test_usable_wheels(file, fits):
    assert usable(file, "1.0") is fits


def test_files_of_an_index_are_read():
    file = "a-1.0-py3-none-any.whl"
    page = f'<a href="/x/{file}#sha256={"0f" * 32}" data-requires-python="&gt;=3.9">{file}</a>'
    assert LINK.findall(page) == [("0f" * 32, "a-1.0-py3-none-any.whl")]


def test_a_pin_is_written_as_pip_reads_it():
    assert str(Pin("numpy", "2.0", ("aa", "bb"))) == "numpy==2.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["serve", "train"])
def test_pip_accepts_it(name, tmp_path):
    """Where the files are at hand; a wheel with another hash would be an error."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--require-hashes"]
    command += ["--target", str(tmp_path), "-r", str(FOLDER / f"{name}.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ConnectionError" in done.stderr or "Temporary failure in name resolution" in done.stderr:
        pytest.skip("no network")
    assert done.returncode == 0, done.stderr
