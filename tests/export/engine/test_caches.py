from types import SimpleNamespace

import pytest
from fake_gpu import FakeRuntimeCache

from rcil.core.errors import RcilError
from rcil_export.engine import caches
from rcil_export.engine.caches import RuntimeCache, runtime_cache_path, timing_cache_path, timings_kept
from rcil_export.engine.flavour import Flavour
from rcil_export.engine.gpu import Gpu


class Config:
    """TensorRT's, as far as timings go: those that start with `ours` fit this GPU."""

    def __init__(self):
        self.used = None

    def create_timing_cache(self, content):
        return SimpleNamespace(content=content, serialize=lambda: b"ours, measured")

    def set_timing_cache(self, cache, ignore_mismatch):
        assert ignore_mismatch is False
        if cache.content and not cache.content.startswith(b"ours"):
            return False
        self.used = cache
        return True


def test_the_next_build_starts_from_the_last(tmp_path):
    path = tmp_path / "deep" / "timing"
    first, second = Config(), Config()
    with timings_kept(first, path):
        assert first.used.content == b""
    with timings_kept(second, path):
        assert second.used.content == b"ours, measured"


def test_measurements_of_another_gpu_are_not_used(tmp_path):
    path, config = tmp_path / "timing", Config()
    path.write_bytes(b"theirs")
    with timings_kept(config, path):
        assert config.used.content == b""
    assert path.read_bytes() == b"ours, measured"


def test_a_failed_build_leaves_the_file_alone(tmp_path):
    path = tmp_path / "timing"
    path.write_bytes(b"ours")
    with pytest.raises(RuntimeError), timings_kept(Config(), path):
        raise RuntimeError
    assert path.read_bytes() == b"ours"


def test_nothing_is_kept_on_request(tmp_path):
    config = Config()
    with timings_kept(config, None):
        assert config.used is None


def test_timings_that_cannot_be_written_are_no_error(tmp_path, monkeypatch, caplog):
    def refuse(path, content):
        raise RcilError(f"cannot write {path}: Read-only file system", "")

    monkeypatch.setattr(caches, "write_file", refuse)
    with caplog.at_level("INFO", logger="rcil"), timings_kept(Config(), tmp_path / "timing"):
        pass
    assert "Read-only file system" in caplog.text


def test_one_file_per_version_and_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flavour = Flavour("classic", SimpleNamespace(__version__="10.16.1"))
    path = timing_cache_path(flavour, Gpu("NVIDIA RTX A4000 (2)", "sm86"))
    assert path == tmp_path / "rcil" / "tensorrt-10.16.1-nvidia-rtx-a4000-2-sm86.timing"


@pytest.fixture
def config():
    config = SimpleNamespace(create_runtime_cache=FakeRuntimeCache, cache=None)
    config.set_runtime_cache = lambda cache: setattr(config, "cache", cache)
    return config


def test_kernels_are_found_again(config, tmp_path):
    path = runtime_cache_path(tmp_path / "model.engine")
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


def test_kernels_that_cannot_be_written_are_no_error(config, tmp_path, monkeypatch, caplog):
    def refuse(path, content):
        raise RcilError(f"cannot write {path}: Read-only file system", "")

    monkeypatch.setattr(caches, "write_file", refuse)
    with caplog.at_level("INFO", logger="rcil"):
        RuntimeCache(config, tmp_path / "cache").save()
    assert "Read-only file system" in caplog.text


def test_a_cache_without_content_writes_nothing(config, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeRuntimeCache, "serialize", lambda self: None)
    RuntimeCache(config, tmp_path / "cache").save()
    assert not (tmp_path / "cache").exists()
