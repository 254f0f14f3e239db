from fractions import Fraction

import av
import numpy as np
import pytest
from clips import contents, picture

from rcil.core.errors import ConfigError
from rcil_serve.runtime.planes import ColourSpace, Planes
from rcil_serve.stream import hardware
from rcil_serve.stream.frames import Frame, SourceInfo
from rcil_serve.stream.outputs import encoders
from rcil_serve.stream.outputs.encoders import CODECS, PRESETS, Codec, Encoding, chosen
from rcil_serve.stream.outputs.movie import Movie

INFO = SourceInfo("", (48, 64), Fraction(25), Fraction(1, 25))


@pytest.fixture
def machine(monkeypatch):
    """Pretend that the machine has a GPU; returns a function that replaces one of its encoders."""
    monkeypatch.setattr(encoders, "is_present", lambda device: device == "cuda")
    monkeypatch.setattr(encoders, "absence", lambda device: "")

    def replace(name, codec):
        monkeypatch.setitem(CODECS, name, codec)

    return replace


def written(path, encoding, info=INFO, frames=5):
    movie = Movie(path, info, encoding=encoding)
    for index in range(frames):
        planes = Planes.of_rgb(picture(index, *info.size), info.space)
        movie.write(planes, Frame(index, index, index / 25, planes, 0.0))
    movie.finish()
    return contents(path, pictures=True)


def test_without_hardware_x264_is_chosen_silently(monkeypatch):
    monkeypatch.setattr(encoders, "is_present", lambda device: False)
    told = []
    assert chosen(Encoding(), INFO, told.append) == Encoding("x264") and told == []


def test_hardware_that_opens_is_preferred_and_used(machine, tmp_path):
    machine("nvenc", Codec("libx264", "cuda", fixed={"preset": "medium"}))  # a stand-in that opens here
    told = []
    found = chosen(Encoding(crf=30), INFO, told.append)
    assert found == Encoding("nvenc", 30) and told == ["encoder: nvenc"]
    assert len(written(tmp_path / "a.mp4", found).times) == 5


def test_hardware_that_does_not_open_is_told_and_x264_is_used(machine):
    machine("nvenc", Codec("libx264", "cuda", fixed={"x264-params": "bframes=nonsense", "preset": "nonsense"}))
    told = []
    assert chosen(Encoding(), INFO, told.append) == Encoding("x264")
    assert len(told) == 1 and told[0].startswith("encoder: x264, because nvenc cannot encode here: ")


@pytest.mark.skipif(hardware.is_present("cuda"), reason="the machine has an NVIDIA GPU")
def test_an_explicit_request_that_cannot_be_met_is_an_error():
    with pytest.raises(
        ConfigError, match=r"nvenc cannot encode here: there is no NVIDIA GPU here.*\nUse --encoder x264"
    ):
        chosen(Encoding("nvenc"), INFO)


def test_an_encoder_that_ffmpeg_lacks_is_named(machine):
    machine("vaapi", Codec("h264_of_nobody", "vaapi"))
    with pytest.raises(ConfigError, match="FFmpeg was built without h264_of_nobody"):
        chosen(Encoding("vaapi"), INFO)


@pytest.mark.parametrize(
    ("encoder", "preset", "message"),
    [
        ("x265", None, "unknown encoder 'x265'\nDid you mean 'x264'"),
        ("auto", "ultrafst", "no preset 'ultrafst'\nDid you mean 'ultrafast'"),
        ("nvenc", "fast", "--preset is for x264"),
    ],
)
def test_impossible_requests_are_refused(encoder, preset, message):
    with pytest.raises(ConfigError, match=message):
        Encoding(encoder, preset=preset)


def test_a_preset_selects_x264(machine):
    machine("nvenc", Codec("libx264", "cuda"))
    assert chosen(Encoding(preset="medium"), INFO) == Encoding("x264", preset="medium")


def test_slower_presets_make_smaller_files(tmp_path):
    sizes = []
    for preset in (PRESETS[0], "medium"):
        written(tmp_path / "a.mp4", Encoding("x264", preset=preset), frames=25)
        sizes.append((tmp_path / "a.mp4").stat().st_size)
    assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize("matrix", ["bt601", "bt709"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [(48, 64), (47, 63)])
def test_files_state_the_colour_space_of_the_source(tmp_path, matrix, full, size):
    """So that colours are those of the source, whatever the player assumes."""
    info = SourceInfo("", size, Fraction(25), Fraction(1, 25), space=ColourSpace(matrix, full))
    found = written(tmp_path / "a.mp4", Encoding(crf=4), info)
    assert found.sizes == {(48, 64)}
    with av.open(str(tmp_path / "a.mp4")) as file:
        frame = next(file.decode(video=0))
        assert (int(frame.colorspace) == 1) == (matrix == "bt709")
        assert (int(frame.color_range) == 2 or frame.format.name == "yuvj420p") == full
    planes = Planes.of_rgb(picture(2, *size), info.space)
    shown = found.pictures[2][: size[0], : size[1]].astype(int)
    assert np.abs(shown - planes.rgb()).mean() < 4


def test_pictures_of_another_colour_space_are_converted(tmp_path):
    """As when a camera changes its settings."""
    pixels = picture(3, 48, 64)
    movie = Movie(tmp_path / "a.mp4", INFO, encoding=Encoding(crf=4))
    for index, space in enumerate((ColourSpace(), ColourSpace("bt709", full_range=True))):
        planes = Planes.of_rgb(pixels, space)
        movie.write(planes, Frame(index, index, index / 25, planes, 0.0))
    movie.finish()
    first, second = contents(tmp_path / "a.mp4", pictures=True).pictures
    assert np.abs(first.astype(int) - second).mean() < 2
