import json
from types import SimpleNamespace

import numpy as np
import pytest

from rcil.core.errors import RcilError
from tools import gpu_check

IMAGES = [np.full((1, 4, 6, 3), value, np.uint8) for value in (1, 2)]


def backend(change=lambda mask: mask):
    return SimpleNamespace(run=lambda image: SimpleNamespace(mask=change(image[..., 0])), close=lambda: None)


def missing():
    raise RcilError("no GPU", "")


@pytest.fixture
def ways(monkeypatch):
    def use(**opened):
        found = [(name, "fp32", open_it) for name, open_it in opened.items()]
        monkeypatch.setattr(gpu_check, "ways", lambda folder, graphs: iter(found))

    return use


def test_a_gpu_that_gives_garbage_is_wrong(ways, tmp_path):
    ways(cpu=backend, cuda=lambda: backend(lambda mask: mask[:, ::-1] + 1), engine=backend, none=missing)
    rows = {row.path: row for row in gpu_check.run_all({}, tmp_path, IMAGES, 2)}
    assert [rows[name].right for name in ("cpu", "cuda", "engine", "none")] == [True, False, True, None]
    assert rows["none"].found == "not available: no GPU" and rows["none"].milliseconds is None
    assert rows["engine"].milliseconds >= 0


def test_the_table_can_be_pasted():
    rows = [gpu_check.Row("a", True, "100 %", 1.234), gpu_check.Row("b", False, "12 %"), gpu_check.Row("c", None, "no")]
    assert gpu_check.as_table({"GPUs": "none"}, rows).splitlines()[-3:] == [
        "| a | right | 100 % | 1.23 |",
        "| b | WRONG | 12 % |  |",
        "| c | - | no |  |",
    ]


@pytest.mark.parametrize(("right", "code"), [(True, None), (None, None), (False, "wrong: a")])
def test_only_wrong_masks_fail(monkeypatch, tmp_path, right, code):
    monkeypatch.setattr("sys.argv", ["gpu_check", "--json", str(tmp_path / "gpu.json")])
    monkeypatch.setattr(gpu_check, "network", lambda: (None, None))
    monkeypatch.setattr(gpu_check, "MIN_AGREEMENT", {})
    monkeypatch.setattr(gpu_check, "run_all", lambda *_: [gpu_check.Row("a", right, "")])
    monkeypatch.setattr(gpu_check, "training_rows", lambda model: [])
    if code is None:
        gpu_check.main()
    else:
        with pytest.raises(SystemExit, match=code):
            gpu_check.main()
    assert json.loads((tmp_path / "gpu.json").read_text())["rows"][0]["right"] is right


@pytest.mark.slow
def test_the_cpu_rows_run_here(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu_check", "--size", "64x96", "--rounds", "2"])
    gpu_check.main()
    said = capsys.readouterr().out
    assert "| ONNX Runtime, CPU, fp32 | right | 100.000% of pixels as on the CPU |" in said
