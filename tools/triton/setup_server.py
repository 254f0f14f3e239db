"""Create a folder with a real Triton server that can serve ONNX on a CPU: `python setup_server.py FOLDER`.

The PyPI package `nvidia-pytriton` brings the server with the Python backend only; `backends/onnxruntime` beside this
file adds ONNX. The folder holds a virtual environment, which needs Python 3.11, and the backends:

    FOLDER/venv/                          server, client, onnxruntime
    FOLDER/backends/python/               library, utilities and the stub for Python 3.11
    FOLDER/backends/onnxruntime/model.py
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

# With numpy 2 this server's Python backend gives empty outputs and no error.
PACKAGES = ["nvidia-pytriton==0.7.0", "tritonclient[grpc,http]==2.73.0", "numpy==1.26.4", "onnxruntime==1.31.1"]
ONNX_BACKEND = Path(__file__).parent / "backends" / "onnxruntime" / "model.py"


class SetupError(Exception):
    """The server is not available on this machine."""


def setup_server(folder: Path) -> None:
    """Fill `folder`, unless an earlier call did; processes that call this at the same time wait for the first."""
    if sys.version_info[:2] != (3, 11):
        raise SetupError(f"the server's Python backend is used with Python 3.11, this is {sys.version.split()[0]}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = folder / "installed", hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()
        if not stamp.exists() or stamp.read_text() != wanted:
            _install(folder / "venv")
            stamp.write_text(wanted)
        _copy_backends(folder)


def site_packages(folder: Path) -> Path:
    """Folder of the packages in the virtual environment."""
    return folder / "venv" / "lib" / "python3.11" / "site-packages"


def _install(venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *PACKAGES]
    for command in ([sys.executable, "-m", "venv", str(venv)], pip):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-800:]}")


def _copy_backends(folder: Path) -> None:
    """Copy a file unless it exists, because a server may be using it."""
    bundled, backends = site_packages(folder) / "pytriton" / "tritonserver", folder / "backends"
    files = {
        "python": [
            bundled / "backends" / "python" / "libtriton_python.so",
            bundled / "backends" / "python" / "triton_python_backend_utils.py",
            bundled / "python_backend_stubs" / "3.11" / "triton_python_backend_stub",
        ],
        "onnxruntime": [ONNX_BACKEND],
    }
    for backend, sources in files.items():
        (backends / backend).mkdir(parents=True, exist_ok=True)
        for source in sources:
            target = backends / backend / source.name
            if not target.exists() or not filecmp.cmp(source, target, shallow=False):
                shutil.copy(source, target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        setup_server(Path(sys.argv[1]))
    except SetupError as error:
        sys.exit(str(error))
