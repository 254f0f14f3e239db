"""The command line, in processes of its own where start-up matters."""

import json
import subprocess
import sys

import pytest
import torch
from commands import call
from networks import at_step, small_arch
from typer.testing import CliRunner

from rcil import __version__
from rcil.checkpoint.file import save
from rcil.cli.app import app
from rcil.model.metadata import LineageEntry, Metadata, class_table


def start(module, *words):
    return subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)


@pytest.fixture
def checkpoint(tmp_path):
    model = at_step(small_arch(), 1)
    steps = [list(names) for names in model.classifier.steps]
    entry = LineageEntry(step=1, source="train", parent_sha256="ab" * 32, seed=7, metrics={"miou": 0.5})
    path = tmp_path / "m.safetensors"
    save(
        path,
        model,
        Metadata(architecture=model.arch, classes=class_table(steps), step=1, method="rcil", lineage=(entry,)),
    )
    return path


@pytest.mark.parametrize("module", ["rcil", "rcil_export", "rcil_serve"])
def test_help_and_version(module):
    shown = start(module, "--help")
    assert shown.returncode == 0
    assert "--version" in shown.stdout
    assert call(f"{module.replace('_', '-')} --version").out.strip().endswith(__version__)


def test_help_and_info_do_not_import_torch(checkpoint):
    """The reason they answer at once; counted in modules, because seconds depend on the machine."""
    script = (
        "import sys\n"
        "from rcil.cli.app import app\n"
        "for words in (['--help'], ['info', sys.argv[1]], ['info', sys.argv[1], '--json']):\n"
        "    try: app(words)\n"
        "    except SystemExit as stop: assert not stop.code\n"
        "    print(sorted({'torch', 'cv2', 'numpy', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, checkpoint], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines().count("[]") == 3


def test_info(checkpoint):
    shown = CliRunner().invoke(app, ["info", str(checkpoint)], env={"COLUMNS": "120"}).stdout
    for part in (
        "resnet18",
        "old branch merged, frozen",
        "background",
        "new1",
        "parameters",
        "MACs at 512x512",
        "miou 0.5",
    ):
        assert part in shown


def test_info_as_json(checkpoint):
    document = json.loads(CliRunner().invoke(app, ["info", str(checkpoint), "--json"]).stdout)
    assert [c["name"] for c in document["classes"]] == ["background", "a", "b", "new1"]
    assert [c["step"] for c in document["classes"]] == [0, 0, 0, 1]
    assert document["architecture"]["rc"]["frozen"] is True
    assert document["parameters"] == sum(p.numel() for p in at_step(small_arch(), 1).parameters())
    assert document["lineage"][0]["seed"] == 7


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 10])
def test_bad_input_gives_a_message_and_a_code_but_no_traceback(tmp_path, content):
    path = tmp_path / "bad.safetensors"
    if content is not None:
        path.write_bytes(content)
    done = call("rcil info", str(path))
    assert done.code == 3
    assert "bad.safetensors" in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_debug_shows_the_traceback(tmp_path):
    assert "Traceback" in start("rcil", "--debug", "info", tmp_path / "none").stderr


def test_import_and_info(tmp_path):
    torch.save({"layer1.0.conv1.weight": torch.zeros(4, 4, 3, 3)}, tmp_path / "a.pth")
    done = call("rcil import", str(tmp_path / "a.pth"), "-o", str(tmp_path / "m.safetensors"))
    assert done.code == 3
    assert "four stages" in done.err
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--norm", "bacth"], "Did you mean 'batch'"),
        (["--output-stride", "32"], "8 or 16"),
        (["--names", "vok"], "Did you mean 'voc'"),
    ],
)
def test_import_refuses_impossible_options(tmp_path, options, message):
    done = call("rcil import", str(tmp_path / "a.pth"), "-o", str(tmp_path / "m.safetensors"), *options)
    assert done.code == 2
    assert message in done.err


def test_a_missing_package_is_named_with_the_remedy(tmp_path):
    script = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['rcil', 'import', 'a.pth', '-o', 'b']\n"
        "from rcil.cli.app import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 4
    assert "pip install 'rcil[train]'" in done.stderr
    assert "Traceback" not in done.stderr
