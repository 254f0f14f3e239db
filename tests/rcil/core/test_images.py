import numpy as np
import pytest

from rcil.core.images import read_rgb, write_image
from rcil.core.reading import DataError

PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def test_round_trip_keeps_the_colour_order(tmp_path):
    write_image(tmp_path / "a.png", PIXELS)
    assert np.array_equal(read_rgb(tmp_path / "a.png"), PIXELS)
    write_image(tmp_path / "grey.png", PIXELS[..., 0])
    assert np.array_equal(read_rgb(tmp_path / "grey.png")[..., 1], PIXELS[..., 0])


def test_the_suffix_decides_the_format(tmp_path):
    write_image(tmp_path / "a.jpg", PIXELS)
    assert (tmp_path / "a.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("name", "pixels", "message"),
    [("a.xyz", PIXELS, "unknown image format"), ("a", PIXELS, "unknown image format"), ("a.png", PIXELS[:0], "empty")],
)
def test_what_cannot_be_written_leaves_nothing(tmp_path, name, pixels, message):
    with pytest.raises(DataError, match=message):
        write_image(tmp_path / name, pixels)
    assert list(tmp_path.iterdir()) == []


def test_a_jpeg_that_was_cut_off_is_an_error(tmp_path):
    write_image(tmp_path / "a.jpg", np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    data = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cut off"):
        read_rgb(tmp_path / "a.jpg")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".JPEG"])
def test_writing_says_nothing(tmp_path, capfd, suffix):
    """OpenCV warns on standard error of options that a format does not have."""
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    sizes = []
    for quality in (40, 95):
        write_image(tmp_path / f"a{suffix}", pixels, quality=quality)
        sizes.append((tmp_path / f"a{suffix}").stat().st_size)
    assert capfd.readouterr() == ("", "")
    assert (sizes[0] == sizes[1]) == (suffix == ".png")
