"""Install the wheel into fresh environments of several Pythons and use it: one row of docs/install.md for each.

For serving, the packages are those of `locks/serve.txt`, so that their hashes are checked too; for training, those of
`constraints.txt`. Torch comes from where pip finds it.

Examples:
    python -m tools.wheel_check python3.11 python3.12 python3.13
    python -m tools.wheel_check python3.11 --train
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
USE = {
    "rcil --version": ["rcil", "--version"],
    "rcil-export --version": ["rcil-export", "--version"],
    "rcil-serve --version": ["rcil-serve", "--version"],
    "rcil data make-site": ["rcil", "data", "make-site", "site", "--count", "5", "--size", "64x96", "--frames", "2"],
    "rcil doctor": ["rcil", "doctor"],
}
"""What works without torch."""
TRAINED = {
    "rcil-export": ["rcil-export", "BASE", "-o", "out", "--size", "64x96", "--target", "onnx", "--rounds", "0"],
    "rcil-serve images": ["rcil-serve", "images", "site/images/val", "-m", "out/model.onnx", "-o", "seen"],
}
"""What also works with torch; BASE is the model of the demo."""


def run(command: Sequence[str | Path], folder: Path) -> bool:
    """Whether a command ends well; its output is shown otherwise."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}", file=sys.stderr)
    return done.returncode == 0


def check(python: str, wheel: Path, *, train: bool) -> str:
    """Install and use the wheel; returns a row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        binaries = folder / "env" / "bin"
        subprocess.run([python, "-m", "venv", folder / "env"], check=True)
        pip = [binaries / "python", "-m", "pip", "install", "--quiet"]
        if train:
            pins = ["-c", ROOT / "constraints.txt"]
            installed = run([*pip, *pins, "torch"], folder) and run([*pip, *pins, f"{wheel}[train,serve,cpu]"], folder)
        else:
            installed = run([*pip, "--require-hashes", "-r", ROOT / "locks" / "serve.txt"], folder)
            installed = installed and run([*pip, "--no-deps", wheel], folder)
        used = USE | (TRAINED if train else {})
        base = next(iter(folder.glob("env/lib/*/site-packages/rcil/demo/base.safetensors")), None)
        failed = [] if installed else ["pip install"]
        for title, words in used.items() if installed else ():
            script, *rest = [str(base) if word == "BASE" else word for word in words]
            failed += [] if run([binaries / script, *rest], folder) else [title]
        version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    result = f"failed: {', '.join(failed)}" if failed else "works"
    return f"| {version} | {'training and serving' if train else 'serving'} | {result} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", help="interpreters")
    parser.add_argument("--train", action="store_true", help="install training and export too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        print("| Python | installed for | |\n|---|---|---|")
        rows = [check(python, wheel, train=arguments.train) for python in arguments.pythons]
    print("\n".join(rows))
    sys.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
