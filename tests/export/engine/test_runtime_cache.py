from types import SimpleNamespace

import pytest
from fake_gpu import FakeRuntimeCache

from rcil.errors import RcilError
from rcil_export.engine import runtime_cache
from rcil_export.engine.runtime_cache import RuntimeCache, cache_path


@pytest.fixture
def config():
    config = SimpleNamespace(create_runtime_cache=FakeRuntimeCache, cache=None)
    config.set_runtime_cache = lambda cache: setattr(config, "cache", cache)
    return config


def test_kernels_are_found_again(config, tmp_path):
    path = cache_path(tmp_path / "model.engine")
    assert path.name == "model.engine.cache"
    RuntimeCache(config, path).save()
    assert path.read_bytes() == b"kernels"
    RuntimeCache(config, path)
    assert config.cache.loaded == b"kernels"


def test_nothing_new_is_not_written_again(config, tmp_path):
    path = tmp_path / "cache"
    RuntimeCache(config, path).save()
    before = path.stat()
    RuntimeCache(config, path).save()
    assert path.stat().st_ino == before.st_ino


def test_kernels_of_another_gpu_are_compiled_again(config, tmp_path, caplog):
    path = tmp_path / "cache"
    path.write_bytes(b"other kernels")
    with caplog.at_level("INFO", logger="rcil"):
        cache = RuntimeCache(config, path)
    assert "does not fit this GPU" in caplog.text and config.cache.loaded == b""
    cache.save()
    assert path.read_bytes() == b"kernels"


def test_a_folder_that_cannot_be_written_to_is_no_error(config, tmp_path, monkeypatch, caplog):
    def refuse(path):
        raise RcilError(f"cannot write {path}: Read-only file system", "")

    monkeypatch.setattr(runtime_cache, "replacing", refuse)
    with caplog.at_level("INFO", logger="rcil"):
        RuntimeCache(config, tmp_path / "cache").save()
    assert "Read-only file system" in caplog.text


def test_a_cache_without_content_writes_nothing(config, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeRuntimeCache, "serialize", lambda self: None)
    RuntimeCache(config, tmp_path / "cache").save()
    assert not (tmp_path / "cache").exists()
