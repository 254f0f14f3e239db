import gzip
import struct
import zlib

import cv2
import numpy as np
import pytest
from servers import jpeg, picture, png

from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.body import decode_image, decompressed


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP ", gzip.compress)]
)
def test_unpacks_what_clients_pack(encoding, pack):
    assert decompressed(pack(b"abc" * 1000), encoding, 3000) == b"abc" * 1000


def test_leaves_plain_bodies_alone():
    body = bytearray(b"abc")
    assert decompressed(body, "", 3) is body
    assert decompressed(body, "identity", 3) is body


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        pytest.param(gzip.compress(bytes(10_000_000), mtime=0), "gzip", 413, id="gzip-bomb"),
        pytest.param(zlib.compress(bytes(1001)), "deflate", 413, id="deflate-one-too-many"),
        pytest.param(gzip.compress(b"abc", mtime=0)[:-4], "gzip", 400, id="cut"),
        pytest.param(gzip.compress(b"abc", mtime=0) + b"more", "gzip", 400, id="more-follows"),
        pytest.param(b"abc", "gzip", 400, id="not-gzip"),
        pytest.param(b"abc", "br", 415, id="unknown"),
        pytest.param(b"abc", "gzip, gzip", 415, id="twice"),
    ],
)
def test_refuses(body, encoding, status):
    with pytest.raises(RefusalError) as caught:
        decompressed(body, encoding, 1000)
    assert caught.value.status == status


IMAGE = picture(0, 24, 40)


def encoded(suffix, *options):
    return cv2.imencode(suffix, IMAGE, list(options))[1].tobytes()


def with_orientation(data, value):
    """A JPEG whose EXIF block says how the camera was held."""
    tiff = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, value, 0, 0)
    block = b"Exif\0\0" + tiff
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:]


@pytest.mark.parametrize(
    "data",
    [
        png(IMAGE),
        jpeg(IMAGE),
        encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        encoded(".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 1),
        with_orientation(jpeg(IMAGE), 1),
        jpeg(IMAGE)[:2] + b"\xff\xff" + jpeg(IMAGE)[2:],
    ],
)
def test_size_from_the_header(data):
    assert decode_image(data, 960).shape == (24, 40, 3)
    with pytest.raises(RefusalError, match="40x24 pixels, more than 959"):
        decode_image(data, 959)


def test_decodes_to_rgb():
    np.testing.assert_array_equal(decode_image(png(IMAGE), 960), IMAGE)


def test_turns_photographs_upright():
    assert decode_image(with_orientation(jpeg(IMAGE), 6), 960).shape == (40, 24, 3)


def test_too_many_pixels_are_refused_before_decoding():
    bomb = bytearray(png(IMAGE))
    bomb[16:24] = struct.pack(">II", 100_000, 100_000)  # would take 30 GB
    with pytest.raises(RefusalError, match="100000x100000") as caught:
        decode_image(bomb, 960)
    assert caught.value.status == 413
    with pytest.raises(RefusalError):
        decode_image(png(IMAGE), 959)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "neither PNG nor JPEG"),
        (b"GIF89a", "neither PNG nor JPEG"),
        (png(IMAGE)[:20], "neither PNG nor JPEG"),
        (jpeg(IMAGE)[:30], "neither PNG nor JPEG"),
        (b"\xff\xd8" + b"\xff\xe1\x00\x00" * 20, "neither PNG nor JPEG"),
        (jpeg(IMAGE)[:-300], "truncated"),
        (png(IMAGE)[:40], "cannot be decoded"),
    ],
)
def test_what_is_no_image(data, words):
    with pytest.raises(RefusalError, match=words) as caught:
        decode_image(data, 960)
    assert caught.value.status == 400


def test_a_jpeg_of_many_scans_is_refused():
    """Thirty bytes more, and every pixel is gone over again: a worker would be busy for hours."""
    data = encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    scan, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    with pytest.raises(RefusalError, match="100 scans") as caught:
        decode_image(data[:end] + data[scan:end] * 200 + data[end:], 960)
    assert caught.value.status == 413
