"""The wheel: exactly three packages, and it works in a clean environment."""

import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_exactly_the_three_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"rcil", "rcil_export", "rcil_serve"}
    sources = {}
    for package, folder in (
        ("rcil", "rcil"),
        ("rcil_export", "export/rcil_export"),
        ("rcil_serve", "serve/rcil_serve"),
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                sources[f"{package}/{path.relative_to(ROOT / folder).as_posix()}"] = path
    assert {name for name in names if ".dist-info/" not in name} == set(sources)


def test_it_runs_in_a_clean_environment(wheel, tmp_path):
    """No torch there: the three scripts answer, and what needs torch says so."""
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    install = [binaries / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, capture_output=True)
    for script in ("rcil", "rcil-export", "rcil-serve"):
        assert subprocess.run([binaries / script, "--help"], check=True, capture_output=True, cwd=tmp_path).stdout
    (tmp_path / "a.pth").write_bytes(b"")
    needs_torch = [binaries / "rcil", "import", "a.pth", "-o", "b.safetensors"]
    done = subprocess.run(needs_torch, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 4
    assert "rcil[train]" in done.stderr


def test_the_version_stands_once_in_each_place():
    from rcil import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"cpu", "gpu", "train", "rtx", "tensorrt", "abn", "serve", "dev"} <= extras.keys()
    pins = (ROOT / "constraints.txt").read_text()
    assert "torch==2.13.0" in pins
