import pytest
import torch

from rcil.core.errors import RcilError
from rcil.core.files import sha256_of
from rcil.training.state import read_state, write_state


def test_the_same_state_gives_the_same_bytes(tmp_path):
    for name in ("one", "another"):
        write_state(tmp_path / f"{name}.pt", {"weights": torch.arange(5.0)})
    assert sha256_of(tmp_path / "one.pt") == sha256_of(tmp_path / "another.pt")
    assert read_state(tmp_path / "one.pt")["weights"].tolist() == [0, 1, 2, 3, 4]


def test_what_torch_makes_of_a_full_disk_is_explained(tmp_path, monkeypatch):
    def fails(document, file):
        file.write(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")

    write_state(tmp_path / "state.pt", {"epoch": 1})
    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(RcilError, match=r"state\.pt could not be written in full") as error:
        write_state(tmp_path / "state.pt", {"epoch": 2})
    assert "--resume" in error.value.hint
    assert read_state(tmp_path / "state.pt") == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
