import struct

import cv2
import numpy as np
import pytest

from rcil.data.converters.annotations import read_colours
from rcil.data.errors import DataError
from rcil.image_header import PNG, is_too_large, stated_size
from rcil.images import read_rgb


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


@pytest.mark.parametrize("read", [read_rgb, read_colours])
def test_absurd_images_are_refused_before_they_are_decoded(read, tmp_path, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    data = encoded(".png")
    (tmp_path / "a.png").write_bytes(data[:16] + struct.pack(">II", 60_000, 60_000) + data[24:])
    with pytest.raises(DataError, match=r"a\.png is 60000 x 60000 pixels\nThe limit is 100 megapixels"):
        read(tmp_path / "a.png")
