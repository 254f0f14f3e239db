"""Completion as shells ask for it: through the environment variables of the scripts that Typer writes for them."""

import os
import subprocess
import sys
from typing import get_args

import pytest
from typer.main import get_command

from rcil.cli import app as cli
from rcil.cli import completion
from rcil.cli.completion import files, one_of, presets, some_of, tasks
from rcil.labelling.selection import Rule
from rcil.methods import METHODS
from rcil.presets import preset_names
from rcil_export.cli import app as export_cli
from rcil_serve.cli import app as serve_cli

SCRIPTS = {"rcil": cli.app, "rcil-export": export_cli.app, "rcil-serve": serve_cli.app}


def offered(line, capsys, monkeypatch, shell="bash"):
    """What a shell is offered at the end of a line."""
    script, *words = line.split(" ")
    monkeypatch.setenv(f"_{script.replace('-', '_').upper()}_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit) as stop:
        get_command(SCRIPTS[script])([], prog_name=script)
    assert stop.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rcil tr", ["train"]),
        ("rcil train voc-15-1-ov", ["voc-15-1-overlapped"]),
        (
            "rcil compare cityscapes-11-",
            ["cityscapes-11-1", "cityscapes-11-1-clean", "cityscapes-11-5", "cityscapes-11-5-clean"],
        ),
        ("rcil compare t.yaml --methods fine-tuning,pl", ["fine-tuning,plop"]),
        ("rcil add-class --method mi", ["mib"]),
        ("rcil import --norm b", ["batch"]),
        ("rcil presets show ade-50", ["ade-50-50"]),
        ("rcil data convert la", ["label-studio", "labelme"]),
        ("rcil info ", ["m.safetensors", "inner/"]),
        ("rcil eval m.safetensors inner/dee", ["inner/deep.safetensors", "inner/deeper.safetensors"]),
        ("rcil-export in", ["inspect", "inner/", "inner/deep.safetensors", "inner/deeper.safetensors"]),
        ("rcil-export m.saf", ["m.safetensors"]),
        ("rcil-export --fla", ["--flavour"]),
        ("rcil-export m.safetensors --precision f", ["fp32", "fp16"]),
        ("rcil-export m.safetensors --target onnx,", ["onnx,auto", "onnx,engine"]),
        ("rcil-export onnx m.safetensors --outputs c", ["confidence"]),
        ("rcil-export m.safetensors -q --prev", ["--previous"]),
        ("rcil-export bench m.onnx --device c", ["cpu", "cuda"]),
        ("rcil-serve video in.mp4 -m ", ["m.onnx", "inner/"]),
        ("rcil-serve diff m.o", ["m.onnx"]),
        ("rcil-serve diff m.onnx m.onnx in.mp4 --view w", ["wipe"]),
    ],
)
def test_bash(line, expected, tmp_path, capsys, monkeypatch):
    (tmp_path / "inner").mkdir()
    for name in ("m.safetensors", "m.onnx", "notes.txt", "inner/deep.safetensors", "inner/deeper.safetensors"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert offered(line, capsys, monkeypatch) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell, capsys, monkeypatch):
    assert "voc-15-1-overlapped" in " ".join(offered("rcil train voc-15-1-ov", capsys, monkeypatch, shell))
    assert "fp16" in " ".join(offered("rcil-export m.safetensors --precision fp1", capsys, monkeypatch, shell))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(script, shell, capsys, monkeypatch):
    variable = f"_{script.replace('-', '_').upper()}_COMPLETE"
    monkeypatch.setenv(variable, f"source_{shell}")
    with pytest.raises(SystemExit) as stop:
        get_command(SCRIPTS[script])([], prog_name=script)
    shown = capsys.readouterr().out
    assert stop.value.code == 0
    assert variable in shown and f"complete_{shell}" in shown


def test_show_completion_for_the_shell_that_asks():
    command = f"'{sys.executable}' -m rcil_export --show-completion"
    done = subprocess.run(["bash", "-c", f"{command}; true"], capture_output=True, text=True, check=False)
    assert "complete_bash" in done.stdout, done.stderr


def test_completion_is_quick_because_it_imports_little():
    script = (
        "import sys; from rcil.cli.app import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'cv2', 'numpy', 'onnx'} & set(sys.modules)"
    )
    environment = {"_RCIL_COMPLETE": "complete_bash", "COMP_WORDS": "rcil compare t --methods r", "COMP_CWORD": "4"}
    command = [sys.executable, "-c", f"import sys; sys.argv[0] = 'rcil'\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    assert done.stdout.split() == ["rcil", "rcil-official", "rcil-plus"]


def test_all_methods_are_offered():
    assert sorted(completion.METHODS) == sorted(METHODS)
    assert get_args(Rule) == completion.RULES


def test_names():
    assert one_of("a", "ab", "b")("a") == ["a", "ab"]
    assert some_of("mask", "logits")("") == ["mask", "logits"]
    assert some_of("mask", "logits")("mask,") == ["mask,logits"], "each once"
    assert presets("") == preset_names()


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one" / "two").mkdir(parents=True)
    (tmp_path / "one" / "two" / "a.onnx").touch()
    (tmp_path / ".hidden.onnx").touch()
    (tmp_path / "task.yaml").touch()
    assert files(".onnx")("") == ["one/two/a.onnx"], "straight through folders with nothing else inside"
    assert files(".onnx")(".h") == [".hidden.onnx"]
    assert files(".onnx")("absent/") == []
    assert tasks("tas") == ["task.yaml"]
