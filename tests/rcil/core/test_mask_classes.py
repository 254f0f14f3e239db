import struct
import zlib

import cv2
import numpy as np
import pytest

from rcil.core.mask_classes import insert_chunk, mask_png, names_chunk, recorded_names
from rcil.core.masks import decode_mask, read_mask, write_mask
from rcil.core.reading import DataError

NAMES = {0: "background", 1: "Straße", 300: '\u4ed4 "x"'}
MASK = np.random.default_rng(0).integers(0, 3, (7, 9), np.uint8)


def png(mask=MASK):
    return cv2.imencode(".png", mask)[1].tobytes()


def test_names_come_back_and_the_ids_stay():
    data = insert_chunk(png(), names_chunk(NAMES))
    assert recorded_names(data, "a") == NAMES
    np.testing.assert_array_equal(decode_mask(data, "a"), MASK)
    np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED), MASK)


def test_masks_without_names():
    assert recorded_names(png(), "a") is None
    assert insert_chunk(png(), b"") == png()


def test_a_mask_file_records_them(tmp_path):
    write_mask(tmp_path / "a.png", MASK, chunk=names_chunk(NAMES))
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png"), MASK)
    assert recorded_names((tmp_path / "a.png").read_bytes(), "a") == NAMES


@pytest.mark.parametrize("text", [b"", b"[1]", b'{"x": 1}', b"\xff", b"[" * 100_000])
def test_unreadable_names_are_refused(text):
    body = names_chunk({})[8:-4].removesuffix(b"{}") + text
    chunk = struct.pack(">I", len(body)) + b"iTXt" + body + struct.pack(">I", zlib.crc32(b"iTXt" + body))
    with pytest.raises(DataError, match=r"a\.png: the recorded class names are unreadable"):
        recorded_names(insert_chunk(png(), chunk), "a.png")


def test_other_text_is_passed_over():
    body = b"Comment\0\0\0\0\0hello"
    chunk = struct.pack(">I", len(body)) + b"iTXt" + body + struct.pack(">I", zlib.crc32(b"iTXt" + body))
    assert recorded_names(insert_chunk(png(), chunk), "a") is None


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_masks_survive_png(kind):
    mask = np.arange(24 * 40, dtype=kind).reshape(24, 40)
    back = cv2.imdecode(np.frombuffer(mask_png(mask, names_chunk({0: "background"})), np.uint8), cv2.IMREAD_UNCHANGED)
    assert back.dtype == kind
    np.testing.assert_array_equal(back, mask)


def test_masks_are_no_larger_than_with_filters_that_libpng_chooses():
    fields = np.random.default_rng(0).normal(size=(9, 16, 6)).astype(np.float32)
    mask = cv2.resize(fields, (640, 360), interpolation=cv2.INTER_CUBIC).argmax(2).astype(np.uint8)
    chosen = cv2.imencode(".png", mask, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
    assert len(mask_png(mask)) < len(chosen)
