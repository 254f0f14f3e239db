import struct
import time
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcil.core.masks import decode_mask, read_mask, write_mask
from rcil.core.reading import DataError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE = 0, 2, 3


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def paeth(left, up, corner):
    """The predictor of the PNG specification, one byte."""
    estimate = left + up - corner
    return min((left, up, corner), key=lambda value: abs(estimate - value))


def filtered(row, above, kind, step):
    """One scanline filtered byte by byte, straight from the PNG specification."""
    result = bytearray([kind])
    for i, value in enumerate(row):
        left, corner = (row[i - step], above[i - step]) if i >= step else (0, 0)
        guess = (0, left, above[i], (left + above[i]) // 2, paeth(left, above[i], corner))[kind]
        result.append((value - guess) % 256)
    return bytes(result)


def encode(values, depth=8, colour=PALETTE, filters=(0,), interlace=0, header=None, extra=()):
    """A PNG of [height, width] numbers; filter types are taken in turn."""
    height, width = values.shape
    if depth == 16:
        rows = [row.astype(">u2").tobytes() for row in values]
    else:
        bits = (values[:, :, None] >> np.arange(depth - 1, -1, -1)) & 1
        rows = [np.packbits(row.astype(np.uint8)).tobytes() for row in bits.reshape(height, -1)]
    above = bytes(len(rows[0]))
    lines = b""
    for number, row in enumerate(rows):
        lines += filtered(row, above, filters[number % len(filters)], 2 if depth == 16 else 1)
        above = row
    size = header or (width, height)
    body = [chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlace))]
    if colour == PALETTE:
        body.append(chunk(b"PLTE", bytes(range(256)) * 3))
    packed = zlib.compress(lines)
    body += [chunk(b"IDAT", packed[:10]), chunk(b"IDAT", packed[10:])]  # two pieces, as encoders may
    return SIGNATURE + b"".join(body) + b"".join(extra) + chunk(b"IEND", b"")


def random_values(depth, height=11, width=13):
    return np.random.default_rng(depth).integers(0, 2**depth, (height, width))


@pytest.mark.parametrize("colour", [GREY, PALETTE])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("filters", [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0)])
def test_every_depth_and_filter(colour, depth, filters):
    values = random_values(depth)
    mask = decode_mask(encode(values, depth, colour, filters), "a.png")
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, values)


def test_indices_are_read_where_opencv_gives_colours(tmp_path):
    values = np.array([[0, 15], [255, 1]])
    (tmp_path / "a.png").write_bytes(encode(values))
    assert cv2.imread(str(tmp_path / "a.png")).ndim == 3
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png"), values)


@pytest.mark.parametrize("filters", [(0,), (4, 3, 2, 1)])
def test_sixteen_bit_grey_with_small_values(filters):
    values = random_values(8)
    np.testing.assert_array_equal(decode_mask(encode(values, 16, GREY, filters), "a.png"), values)


def test_sixteen_bit_grey_with_large_values():
    with pytest.raises(DataError, match=r"a\.png holds the value 256"):
        decode_mask(encode(np.array([[0, 256]]), 16, GREY), "a.png")


def test_ancillary_chunks_change_nothing():
    extra = [chunk(b"gAMA", struct.pack(">I", 45455)), chunk(b"tRNS", b"\0\1")]
    values = random_values(8)
    np.testing.assert_array_equal(decode_mask(encode(values, colour=GREY, extra=extra), "a.png"), values)


def test_a_large_mask_is_quick(tmp_path):
    values = np.kron(np.random.default_rng(0).integers(0, 20, (64, 128)), np.ones((16, 16), np.uint8)).astype(np.uint8)
    left = np.pad(values, ((0, 0), (1, 0)))[:, :-1]  # every row uses the Sub filter
    lines = np.concatenate([np.ones((1024, 1), np.uint8), values - left], axis=1)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2048, 1024, 8, PALETTE, 0, 0, 0))
    data = SIGNATURE + header + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
    started = time.process_time()
    mask = decode_mask(data, "a.png")
    assert time.process_time() - started < 0.5  # about 0.02 s; room for a busy machine
    np.testing.assert_array_equal(mask, values)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 2, 4, 8]), st.integers(0, 4), st.randoms())
@settings(max_examples=25, deadline=None)
def test_any_size(height, width, depth, kind, random):
    values = np.array([[random.randrange(2**depth) for _ in range(width)] for _ in range(height)])
    np.testing.assert_array_equal(decode_mask(encode(values, depth, PALETTE, (kind,)), "a.png"), values)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_cut_or_altered_files_raise_nothing_but_data_errors(data):
    whole = encode(random_values(4), 4, filters=(4, 3))
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DataError):
        decode_mask(whole[:at], "a.png")
    altered = bytearray(whole)
    altered[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DataError):
        decode_mask(bytes(altered), "a.png")


@given(st.binary(max_size=60), st.binary(max_size=60))
@settings(max_examples=40, deadline=None)
def test_nonsense_with_right_checksums(header, pixels):
    data = SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    with pytest.raises(DataError):
        decode_mask(data, "a.png")


def with_pixels(lines, size=(2, 2)):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, GREY, 0, 0, 0))
    return SIGNATURE + header + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GIF89a", "not a PNG"),
        (SIGNATURE + chunk(b"IDAT", b"") + chunk(b"IEND", b""), "does not begin with a PNG header"),
        (encode(np.zeros((2, 2), int), interlace=1), "interlaced"),
        (encode(np.zeros((2, 2), int), header=(50_000, 2_001)), "50000 x 2001 pixels"),
        (encode(np.zeros((2, 2), int), header=(1_000_001, 1)), "1000001 x 1 pixels"),
        (encode(np.zeros((2, 2), int), header=(0, 2)), "invalid PNG header"),
        (encode(np.zeros((2, 2), int), 16, PALETTE), "invalid PNG header"),
        (with_pixels(b"no zlib"), "compressed pixels are unreadable"),
        (with_pixels(zlib.compress(bytes(5))), "does not hold 2 x 2 pixels"),
        (with_pixels(zlib.compress(bytes(7))), "does not hold 2 x 2 pixels"),
        (with_pixels(zlib.compress(bytes(10**6))), "does not hold 2 x 2 pixels"),
        (with_pixels(zlib.compress(bytes(6))[:-1]), "does not hold 2 x 2 pixels"),
        (with_pixels(zlib.compress(b"\5\0\0\0\0\0")), "unknown PNG filter"),
    ],
)
def test_refused(data, message):
    with pytest.raises(DataError, match=rf"a\.png.*{message}"):
        decode_mask(data, "a.png")


@pytest.mark.parametrize("channels", [3, 4])
def test_true_colour_is_no_mask(tmp_path, channels):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((2, 2, channels), np.uint8))
    with pytest.raises(DataError, match=r"a\.png is a true-colour"):
        read_mask(tmp_path / "a.png")


@pytest.mark.parametrize("raises", [True, False])
def test_limits_of_opencv_are_reported(monkeypatch, raises):
    def refused(*args):
        if raises:
            raise cv2.error("too large")

    monkeypatch.setattr(cv2, "imdecode", refused)
    with pytest.raises(DataError, match=r"a\.png: OpenCV refuses 13 x 11 pixels"):
        decode_mask(encode(random_values(8)), "a.png")


def test_a_missing_mask(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*none\.png: No such file") as caught:
        read_mask(tmp_path / "none.png")
    assert caught.value.exit_code == 6


def test_written_masks_are_grey_and_read_back(tmp_path):
    mask = random_values(8).astype(np.uint8)
    write_mask(tmp_path / "new" / "a.png", mask)
    np.testing.assert_array_equal(read_mask(tmp_path / "new" / "a.png"), mask)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "new" / "a.png"), cv2.IMREAD_UNCHANGED), mask)


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (64, 33)])
def test_a_palette_colours_the_ids_and_keeps_them(tmp_path, size):
    mask = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    palette = np.random.default_rng(2).integers(0, 256, (256, 3), dtype=np.uint8)
    write_mask(tmp_path / "a.png", mask, palette)
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png"), mask)
    shown = cv2.imread(str(tmp_path / "a.png"))[..., ::-1]
    np.testing.assert_array_equal(shown, palette[mask])


@pytest.mark.parametrize(
    "mask", [np.zeros((2, 2), np.int64), np.zeros((2, 2, 3), np.uint8), np.zeros((0, 2), np.uint8)]
)
def test_only_masks_are_written(tmp_path, mask):
    with pytest.raises(DataError, match=r"a\.png"):
        write_mask(tmp_path / "a.png", mask)
    assert not list(tmp_path.iterdir())
