import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcil.core.reading import DataError
from rcil.data.brush import decode_brush, encode_brush

HEADER = "00111" + "0010" + "0011" + "0111" + "1111"
"""8 bits per value; lengths of 3, 4, 8 and 16 bits."""


def packed(total, bits):
    text = f"{total:032b}" + HEADER + bits
    return np.packbits(np.array(list(text), np.uint8)).tolist()


def test_two_pixels_by_hand():
    """Blocks '1 00 011 11111111' and '1 00 011 00000000': four values of 255, four of 0."""
    assert encode_brush(np.array([[True, False]])) == [0, 0, 0, 8, 57, 27, 252, 127, 241, 128, 0]
    assert decode_brush([0, 0, 0, 8, 57, 27, 252, 127, 241, 128, 0], (1, 2), "x").tolist() == [[True, False]]


def test_an_empty_mask_begins_as_in_an_export_of_label_studio():
    """A published export of an image of 3332 x 2527 pixels starts with these bytes: long runs of zeros."""
    expected = [2, 1, 233, 240, 57, 27, 255, 255, 255, 0, 255, 255, 224, 31, 255, 252, 3, 255, 255, 128, 127, 255, 240]
    assert encode_brush(np.zeros((2527, 3332), bool))[:23] == expected


def test_lists_of_values_and_the_alpha_channel():
    rgba = "00000001" + "00000010" + "00000011" + "11111111"
    assert decode_brush(packed(4, "0" + "00" + "011" + rgba), (1, 1), "x").tolist() == [[True]]
    clear = "11111111" * 3 + "00000000"
    assert decode_brush(packed(4, "0" + "01" + "0011" + clear), (1, 1), "x").tolist() == [[False]]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0, 10**6))
def test_any_mask_comes_back(height, width, share, seed):
    region = np.random.default_rng(seed).random((height, width)) < share
    np.testing.assert_array_equal(decode_brush(encode_brush(region), region.shape, "x"), region)


@pytest.mark.parametrize("pixels", [2, 4, 64, 16384, 16385, 40000])
def test_every_length_of_a_run(pixels):
    region = np.zeros((1, pixels + 1), bool)
    region[0, :pixels] = True
    np.testing.assert_array_equal(decode_brush(encode_brush(region), region.shape, "x"), region)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "ends early"),
        ([0, 0, 0, 4, 57], "ends early"),
        ([256], "not bytes"),
        ([-1] * 9, "not bytes"),
        (packed(8, ""), "covers 2 pixels"),
        (packed(4, ""), "is damaged"),
        (packed(4, "1" + "00" + "111" + "11111111"), "is damaged"),
        (packed(4, "0" + "00" + "011" + "1111"), "is damaged"),
    ],
)
def test_damaged_data(data, message):
    with pytest.raises(DataError, match=f"a task.*{message}"):
        decode_brush(data, (1, 1), "a task")
