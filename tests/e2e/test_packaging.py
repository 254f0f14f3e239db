"""The wheel: exactly three packages, and it works in a clean environment."""

import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def required(name):
    """The installed packages that one needs to run, by their declared requirements; the package itself is first."""
    found, left = {}, [name]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found[name] = metadata.distribution(name)
            wanted = map(Requirement, found[name].requires or ())
            left += [need.name for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def scripts_answer(binaries, folder):
    """No torch there: the three scripts answer, and what needs torch says so."""
    for script in ("rcil", "rcil-export", "rcil-serve"):
        assert subprocess.run([binaries / script, "--help"], check=True, capture_output=True, cwd=folder).stdout
    (folder / "a.pth").write_bytes(b"")
    needs_torch = [binaries / "rcil", "import", "a.pth", "-o", "b.safetensors"]
    done = subprocess.run(needs_torch, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 4
    assert "rcil[train]" in done.stderr


def test_it_runs_with_nothing_but_what_it_requires(wheel, tmp_path, monkeypatch):
    """Its requirements are not installed again: links lead to those of this environment."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (installed,) = metadata.distributions(name="rcil", path=[str(site)])
    for requirement in map(Requirement, installed.requires):
        if requirement.marker is None:
            for distribution in required(requirement.name).values():
                for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
                    if not (site / top).exists():
                        (site / top).symlink_to(distribution.locate_file(top))
    scripts_answer(python.parent, tmp_path)


@pytest.mark.slow  # downloads and unpacks all that the wheel requires
def test_it_runs_in_a_clean_environment(wheel, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    install = [binaries / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, capture_output=True)
    scripts_answer(binaries, tmp_path)


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
