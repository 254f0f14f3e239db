import struct

import cv2
import numpy as np
import pytest

from rcil.core.images import PNG, has_too_many_scans, is_too_large, lacks_bytes, read_rgb, stated_size, write_image
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


def encoded(suffix):
    return cv2.imencode(suffix, np.zeros((7, 9, 3), np.uint8))[1].tobytes()


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_the_size_is_known_without_decoding(suffix):
    data = encoded(suffix)
    assert stated_size(data) == stated_size(memoryview(data)) == (7, 9)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00\x00" * 4, PNG + b"IHDR", b"GIF89a" + bytes(40)]
)
def test_what_states_no_size(data):
    assert stated_size(data) is None


def test_the_limit_is_of_pixels_and_of_sides():
    assert not is_too_large((10_000, 10_000))
    assert is_too_large((10_000, 10_001)) and is_too_large((1, 1_000_001))


def test_absurd_images_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    data = encoded(".png")
    (tmp_path / "a.png").write_bytes(data[:16] + struct.pack(">II", 60_000, 60_000) + data[24:])
    with pytest.raises(DataError, match=r"a\.png is 60000 x 60000 pixels\nThe limit is 100 megapixels"):
        read_rgb(tmp_path / "a.png")


def with_hidden_size():
    """A JPEG of 300 x 400 pixels; whoever takes FF 00 for a marker with a length finds 7 x 9 instead."""
    large = cv2.imencode(".jpg", np.zeros((300, 400, 3), np.uint8))[1].tobytes()[2:]
    small = encoded(".jpg")
    place = small.index(b"\xff\xc0")
    frame = small[place : place + 19]
    scan = large.index(b"\xff\xda")
    hidden = large[:scan] + b"\xff\xfe" + struct.pack(">H", 2 + len(frame))  # a comment, to a decoder
    return b"\xff\xd8\xff\x00" + struct.pack(">H", 2 + len(hidden)) + hidden + frame + large[scan:]


def test_no_other_size_hides_behind_a_zero_marker(tmp_path, capfd):
    data = with_hidden_size()
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == (300, 400, 3)
    assert stated_size(data) is None
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(DataError, match="not an image that can be decoded"):
        read_rgb(tmp_path / "a.jpg")


def test_a_jpeg_that_goes_over_its_pixels_again_and_again(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    scan, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    slow = data[:end] + data[scan:end] * 200 + data[end:]
    assert not has_too_many_scans(data) and has_too_many_scans(slow)
    (tmp_path / "a.jpg").write_bytes(slow)
    with pytest.raises(DataError, match="more than 100 scans"):
        read_rgb(tmp_path / "a.jpg")


@pytest.mark.parametrize("suffix", [".bmp", ".webp", ".tiff"])
def test_formats_whose_size_is_not_known_are_not_decoded(tmp_path, suffix):
    (tmp_path / "a.jpg").write_bytes(encoded(suffix))
    with pytest.raises(DataError, match="not an image that can be decoded"):
        read_rgb(tmp_path / "a.jpg")


def test_a_chunk_that_is_longer_than_the_file_is_not_decoded(tmp_path, monkeypatch):
    data = encoded(".png")
    assert not lacks_bytes(data) and not lacks_bytes(data + b"more") and not lacks_bytes(encoded(".jpg"))
    place = data.index(b"IDAT") - 4
    end = data.index(b"IEND") - 4
    for bad in (*(data[:at] + b"\x20\x20\x20\x20" + data[at + 4 :] for at in (place, end)), data[:-20]):
        assert lacks_bytes(bad)
        (tmp_path / "a.png").write_bytes(bad)
        monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
        with pytest.raises(DataError, match=r"a\.png is not an image that can be decoded"):
            read_rgb(tmp_path / "a.png")
