import shutil

import pytest
from commands import make_world


@pytest.fixture(scope="package")
def world(tmp_path_factory):
    """Files that every command can read; tests do not change it."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def linked(world, tmp_path, monkeypatch):
    """A folder with links to it, for calls that write nothing there, and the current folder."""
    for path in world.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RCIL_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """A copy of it, and the current folder."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RCIL_DEBUG", raising=False)
    return tmp_path
