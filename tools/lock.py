"""Write the files of `locks/`: every package of an installation with its version and the hashes of its wheels.

pip resolves the extras with the versions of `constraints.txt`. The hashes are those that pip's own index states for the
Linux wheels of every supported Python, so that one file serves x86-64 and aarch64. No address is written. Wheels that
the index does not have, such as the CPU build of torch in a folder of `--find-links`, are hashed as they are.

Examples:
    python -m tools.lock
    python -m tools.lock serve
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "locks"
LOCKS = {"serve": "serve,sign,cpu", "train": "train,serve,sign,classify,cpu", "gpu": "train,serve,sign,classify,gpu"}
"""The extras of each file. That of GPUs has the torch of pip's index, which brings CUDA; `train` has the CPU build."""
LINK = re.compile(r"#sha256=([0-9a-f]{64})[^>]*>\s*([^<\s]+)\s*</a>")
"""A file on a page of an index."""
PYTHONS = ("cp311", "cp312", "cp313")
HEADER = """# {extras}: made by `make lock` with Python {python}. Install with:
#   pip install --require-hashes -r locks/{name}.txt && pip install --no-deps rcil
"""


@dataclass(frozen=True)
class Pin:
    """A package, its version, and the hashes of the files that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]

    def __str__(self) -> str:
        return " \\\n".join(
            [f"{self.name}=={self.version}", *(f"    --hash=sha256:{digest}" for digest in self.hashes)]
        )


def requirements(extras: Iterable[str]) -> Iterator[str]:
    """What the project and its extras require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    yield from project["dependencies"]
    for extra in extras:
        yield from project["optional-dependencies"][extra]


def resolve(wanted: Iterable[str], *, local: bool) -> list[dict[str, Any]]:
    """What pip would install into an empty environment; `local` also looks into the folders of pip's settings."""
    environment = dict(os.environ)
    if not local:
        environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed"]
        command += ["--only-binary=:all:", "-c", str(ROOT / "constraints.txt"), "--report", str(report), *wanted]
        subprocess.run(command, check=True, env=environment)
        found: list[dict[str, Any]] = json.loads(report.read_text("utf-8"))["install"]
    return found


def pin(found: dict[str, Any]) -> Pin:
    """A package that pip chose, with the hashes of all its usable wheels."""
    name, version = found["metadata"]["name"].lower().replace("_", "-"), found["metadata"]["version"]
    url = found["download_info"]["url"]
    if "+" in version:  # a local version, such as 2.13.0+cpu: no index has it
        content = Path(unquote(urlsplit(url).path)).read_bytes()
        return Pin(name, version.partition("+")[0], (hashlib.sha256(content).hexdigest(),))
    hashes = sorted({digest for file, digest in index_files(name).items() if usable(file, version)})
    chosen = found["download_info"]["archive_info"]["hashes"]["sha256"]
    if chosen not in hashes:
        raise SystemExit(f"{name} {version}: the wheel that pip chose is not on its index")
    return Pin(name, version, tuple(hashes))


def index_files(name: str) -> dict[str, str]:
    """File names and sha256 of a package on the index that pip uses without settings."""
    from pip._internal.models.index import PyPI

    with urllib.request.urlopen(f"{PyPI.simple_url}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    return {file: digest for digest, file in LINK.findall(page)}


def usable(filename: str, version: str) -> bool:
    """Whether it is a wheel of this version for Linux on x86-64 or aarch64 and a supported Python."""
    parts = filename.removesuffix(".whl").split("-")
    if not filename.endswith(".whl") or parts[1] != version:
        return False
    python, abi, platform = parts[-3:]
    if platform != "any" and not re.search(r"(?<!musl)linux.*_(x86_64|aarch64)$", platform):
        return False
    if abi == "abi3":
        return any(int(tag.removeprefix("cp3")) <= 13 for tag in python.split("."))
    return "py3" in python.split(".") or (python in PYTHONS and not abi.endswith("t"))


def write(name: str) -> Path:
    """Write one lock file and return its path."""
    extras = LOCKS[name].split(",")
    found = resolve(requirements(extras), local="gpu" not in extras)
    pins = sorted({str(pin(one)) for one in found})
    python = ".".join(map(str, sys.version_info[:2]))
    path = FOLDER / f"{name}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEADER.format(extras=LOCKS[name], python=python, name=name) + "\n".join(pins) + "\n", "utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*LOCKS, []], help="files to write (default: all)")
    for name in parser.parse_args().names or LOCKS:
        path = write(name)
        print(f"{path.relative_to(ROOT)}: {path.read_text('utf-8').count('==')} packages")


if __name__ == "__main__":
    main()
