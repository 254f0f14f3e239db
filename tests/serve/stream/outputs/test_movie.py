import re
import resource
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import av
import av.filter
import av.logging
import numpy as np
import pytest
from clips import contents, copied, picture

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


def test_a_file_in_progress_can_be_played_up_to_its_last_second(tmp_path):
    """A camera of 5 fps that does not state its rate; x264 sets a key frame every 25 frames, and delays some."""
    movie = Movie(tmp_path / "a.mp4", INFO)
    for index in range(24):
        movie.write(picture(index, 48, 64), SimpleNamespace(pts=5 * index))
    (tmp_path / "killed.mp4").write_bytes(movie.part.read_bytes())
    assert len(contents(tmp_path / "killed.mp4").times) >= 24 - 5 - 5
    movie.finish()
    assert contents(tmp_path / "a.mp4").times == pytest.approx([index / 5 for index in range(24)])


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


@pytest.mark.parametrize(("rotation", "aspect"), [(0, Fraction(16, 11)), (90, Fraction(11, 16))])
def test_pixels_that_are_not_square_stay_so(tmp_path, rotation, aspect):
    with av.open(str(tmp_path / "pal.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.codec_context.sample_aspect_ratio = stream.sample_aspect_ratio = Fraction(16, 11)
        if rotation:
            stream.set_display_rotation(rotation)
        for index in range(3):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")))
        out.mux(stream.encode(None))
    source = copied(tmp_path / "pal.mp4", tmp_path / "out.mp4")
    assert source.info.aspect == aspect and f"pixels {aspect.numerator}:{aspect.denominator}" in source.info.summary
    with av.open(str(tmp_path / "out.mp4")) as out:
        assert out.streams.video[0].sample_aspect_ratio == aspect


def test_masks_state_pixels_that_are_not_square(tmp_path):
    masks = np.random.default_rng(0).integers(0, 256, (3, 48, 64), np.uint8)
    movie = Movie(tmp_path / "a.mkv", replace(INFO, aspect=Fraction(16, 11)), lossless=True)
    for index, mask in enumerate(masks):
        movie.write(mask, SimpleNamespace(pts=2 * index))
    movie.finish()
    with av.open(str(tmp_path / "a.mkv")) as found:
        frames = list(found.decode(video=0))
    np.testing.assert_array_equal([frame.to_ndarray() for frame in frames], masks)
    assert [frame.time for frame in frames] == pytest.approx([0, 0.08, 0.16])
    assert shapes_of(frames) == ["16/11"] * 3


def shapes_of(frames):
    """The shape of pixels in frames, which PyAV does not tell, but the log of a filter does."""
    graph = av.filter.Graph()
    buffer = graph.add("buffer", "video_size=64x48:pix_fmt=gray:time_base=1/25")
    graph.link_nodes(buffer, graph.add("showinfo"), graph.add("buffersink")).configure()
    level = av.logging.get_level()
    av.logging.set_level(av.logging.INFO)
    try:
        with av.logging.Capture() as lines:
            for frame in frames:
                graph.push(frame)
                graph.pull()
    finally:
        av.logging.set_level(level)
    return re.findall(r"sar:(\S+)", "".join(text for _, _, text in lines))
