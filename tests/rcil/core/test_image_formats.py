"""WebP, BMP and TIFF: exact pixels, and errors before anything large or odd is decoded."""

import struct

import cv2
import numpy as np
import pytest

from rcil.core.image_formats import READABLE, read_any_rgb
from rcil.core.reading import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
SMOOTH = cv2.GaussianBlur(PIXELS, (0, 0), 5)


def encoded(suffix, pixels=PIXELS, options=()):
    return cv2.imencode(suffix, pixels[..., ::-1] if pixels.ndim == 3 else pixels, list(options))[1].tobytes()


def write(path, data):
    path.write_bytes(data)
    return path


LOSSLESS = {
    ".png": (),
    ".bmp": (),
    ".tif": (),
    ".tiff": (cv2.IMWRITE_TIFF_COMPRESSION, 1),
    ".webp": (cv2.IMWRITE_WEBP_QUALITY, 101),
}


@pytest.mark.parametrize("suffix", LOSSLESS)
def test_pixels_are_exact(tmp_path, suffix):
    found = read_any_rgb(write(tmp_path / f"a{suffix}", encoded(suffix, options=LOSSLESS[suffix])))
    np.testing.assert_array_equal(found, PIXELS)
    assert suffix in READABLE


def test_lossy_webp_and_jpeg_are_close(tmp_path):
    for suffix in (".webp", ".jpg"):
        found = read_any_rgb(
            write(
                tmp_path / f"a{suffix}",
                encoded(suffix, SMOOTH, (cv2.IMWRITE_WEBP_QUALITY, 90) if suffix == ".webp" else ()),
            )
        )
        assert np.abs(found.astype(int) - SMOOTH).mean() < 3


def test_grey_and_16_bit_images_become_colours(tmp_path):
    deep = PIXELS.astype(np.uint16) * 256 + 37
    found = read_any_rgb(write(tmp_path / "a.tif", encoded(".tif", deep)))
    np.testing.assert_allclose(found.astype(int), PIXELS, atol=1)
    grey = read_any_rgb(write(tmp_path / "b.bmp", encoded(".bmp", PIXELS[..., 0])))
    np.testing.assert_array_equal(grey, np.repeat(PIXELS[..., :1], 3, axis=2))


@pytest.mark.parametrize("suffix", LOSSLESS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_files_that_are_cut_off_are_refused(tmp_path, suffix, share):
    data = encoded(suffix, options=LOSSLESS[suffix])
    with pytest.raises(DataError, match=r"cut off|not an image"):
        read_any_rgb(write(tmp_path / f"a{suffix}", data[: int(len(data) * share)]))


def tiff_with(data, tag, value):
    """Change a short or long value of the first directory of a little-endian TIFF."""
    at = struct.unpack_from("<I", data, 4)[0]
    changed = bytearray(data)
    for entry in range(at + 2, at + 2 + 12 * struct.unpack_from("<H", data, at)[0], 12):
        if struct.unpack_from("<H", data, entry)[0] == tag:
            struct.pack_into("<HHII", changed, entry, tag, 4, 1, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("suffix", "change", "words"),
    [
        (".bmp", lambda data: data[:18] + struct.pack("<ii", 60000, 60000) + data[26:], "60000 x 60000"),
        (".tif", lambda data: tiff_with(tiff_with(data, 256, 60000), 257, 60000), "60000 x 60000"),
        (".tif", lambda data: tiff_with(data, 258, 32), "not colours"),
        (".tif", lambda data: tiff_with(data, 262, 8), "neither grey nor RGB"),
        (".tif", lambda data: data[:4] + struct.pack("<I", 2**31) + data[8:], "not an image"),
        (".bmp", lambda data: b"GIF89a" + data[6:], "not an image"),
        (".webp", lambda data: data[:12] + b"VP9X" + data[16:], "not an image"),
    ],
)
def test_odd_headers_never_reach_opencv(tmp_path, monkeypatch, suffix, change, words):
    data = change(encoded(suffix, options=LOSSLESS[suffix]))
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DataError, match=words):
        read_any_rgb(write(tmp_path / f"a{suffix}", data))


def test_a_tiff_of_several_pages_is_refused(tmp_path):
    assert cv2.imwritemulti(str(tmp_path / "a.tif"), [PIXELS, PIXELS])
    with pytest.raises(DataError, match="several pages"):
        read_any_rgb(tmp_path / "a.tif")
