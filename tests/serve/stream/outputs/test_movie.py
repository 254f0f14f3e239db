import resource
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from clips import contents, picture

from rcil.core.errors import ConfigError
from rcil_serve.stream.frames import OutputError, SourceInfo
from rcil_serve.stream.outputs.movie import Movie

INFO = SourceInfo("", (48, 64), Fraction(25), Fraction(1, 25))
FRAMES = 6


def write(path, **options):
    movie = Movie(path, INFO, **options)
    for index in range(FRAMES):
        pixels = picture(index, 48, 64)
        movie.write(np.ascontiguousarray(pixels[..., 0]) if options else pixels, SimpleNamespace(pts=index))
    return movie


@pytest.mark.parametrize(("name", "options"), [("a.mp4", {}), ("a.mkv", {"lossless": True})])
def test_a_file_whose_end_does_not_fit_does_not_get_its_name(tmp_path, name, options):
    """FFmpeg closes its files without a word about errors, and the last bytes are written then."""
    movie = write(tmp_path / name, **options)
    movie.finish()
    size = (tmp_path / name).stat().st_size
    (tmp_path / name).write_text("of an earlier run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    movie = write(tmp_path / name, **options)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 20, before[1]))
        with pytest.raises(OutputError, match="cannot write"):
            movie.finish()
        movie.abandon()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / name).read_text() == "of an earlier run"


def test_a_file_that_fits_is_whole_and_times_are_kept(tmp_path):
    write(tmp_path / "a.mp4").finish()
    assert contents(tmp_path / "a.mp4").times == pytest.approx([index / 25 for index in range(FRAMES)])
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(
    ("name", "options"), [("a.xyz", {}), ("a.mkv", {}), ("a", {}), ("a.mp4", {"lossless": True}), ("a.MP4", None)]
)
def test_other_endings_leave_nothing(tmp_path, name, options):
    if options is None:
        write(tmp_path / name).finish()
        return
    with pytest.raises(ConfigError, match="cannot be written as"):
        Movie(tmp_path / name, INFO, **options)
    assert list(tmp_path.iterdir()) == []
