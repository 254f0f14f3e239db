from fractions import Fraction

import av
import cv2
import numpy as np
import pytest

from rcil_serve.runtime.planes import BT601, Planes, as_rgb
from rcil_serve.stream.frames import Counts, Selection
from rcil_serve.stream.sources.container import TURNS, FrameSelector, fitted, picture_of


def decoded_frame():
    """A decoded frame of 4 x 6 pixels whose first row is white."""
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[0] = 255
    return av.VideoFrame.from_ndarray(pixels, format="rgb24")


def scene(height, width):
    coarse = np.random.default_rng(0).integers(40, 216, (4, 5, 3), dtype=np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def test_every_decoded_frame_is_either_read_or_left_out():
    counts = Counts()
    selector = FrameSelector(Selection(stride=2, start=0.2, most=2), counts, (4, 6))
    frames = []
    while not selector.over:
        frames.append(selector.select(decoded_frame(), 10 * selector.index, selector.index / 10, 0))
    assert [frame and (frame.index, frame.pts) for frame in frames] == [None, None, (2, 20), None, (4, 40), None]
    assert (counts.read, counts.left_out, selector.index) == (2, 4, 6)


def test_selected_frames_are_upright_and_have_one_size():
    selector = FrameSelector(Selection(), Counts(), (6, 4))
    turned = selector.select(decoded_frame(), 0, 0.0, 90).pixels
    assert turned.shape == (6, 4, 3) and turned[:, 0].all() and not turned[:, 1:].any()
    other = selector.select(decoded_frame(), 1, 0.1, 0).pixels
    assert other.shape == (6, 4, 3), "a frame of another size is letterboxed"


@pytest.mark.parametrize("size", [(48, 64), (47, 63)])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize(
    ("form", "colorspace", "planar"),
    [
        ("yuv420p", 2, True),
        ("yuv420p", 1, True),
        ("yuvj420p", 5, True),
        ("nv12", 1, True),
        ("yuv420p", 9, False),
        ("yuv420p10le", 1, True),
        ("yuv420p10le", 9, False),
        ("yuv444p", 1, False),
        ("gray", 2, False),
    ],
)
def test_frames_keep_their_planes_and_their_colours(form, colorspace, planar, turn, size):
    """FFmpeg's own conversion to RGB is the reference; at odd sides and for nv12 it interpolates chroma."""
    frame = av.VideoFrame.from_ndarray(scene(*size), format="rgb24").reformat(format=form)
    frame.colorspace, frame.color_range = colorspace, 2 if form == "yuvj420p" else 1
    picture = picture_of(frame, turn)
    assert isinstance(picture, Planes) == (planar and (turn == 0 or not any(side % 2 for side in size)))
    expected = frame.to_ndarray(format="rgb24")
    expected = cv2.rotate(expected, TURNS[turn]) if turn else expected
    difference = np.abs(as_rgb(picture).astype(int) - expected)
    interpolated = form in ("nv12", "yuv420p10le") or any(side % 2 for side in size)
    assert difference.max() <= (24 if interpolated else 3) and difference.mean() < (3 if interpolated else 1.5)


@pytest.mark.parametrize("colorspace", [1, 9])
@pytest.mark.parametrize("form", ["yuv420p10le", "yuv422p10le"])
def test_chroma_with_more_bits_is_where_that_of_8_bits_is(form, colorspace):
    """FFmpeg 8 treats them differently when it converts them to RGB, if the file states where chroma is."""
    pixels = np.full((48, 64, 3), 96, np.uint8)
    pixels[:22, 22:42], pixels[22:, 42:] = (208, 32, 32), (48, 64, 224)
    planes = Planes.of_rgb(pixels, BT601)
    stacked = np.concatenate([plane.ravel() for plane in (planes.y, planes.u, planes.v)]).reshape(72, 64)
    plain = av.VideoFrame.from_ndarray(stacked, format="yuv420p")
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 64, 48, form, Fraction(1, 25)
    encoder.options, encoder.colorspace = {"qp": "0"}, colorspace
    decoder = av.CodecContext.create("h264", "r")
    packets = [*encoder.encode(plain.reformat(format=form)), *encoder.encode(None)]
    (deep,) = (frame for packet in (*packets, None) for frame in decoder.decode(packet))
    plain.colorspace = colorspace
    difference = as_rgb(picture_of(deep, 0)).astype(float) - plain.to_ndarray(format="rgb24")
    assert np.abs(difference.reshape(6, 8, 8, 8, 3).mean(axis=(1, 3))).max() < 4


def test_planes_of_another_size_are_letterboxed():
    frame = av.VideoFrame.from_ndarray(scene(48, 64), format="rgb24").reformat(format="yuv420p")
    found = as_rgb(fitted(picture_of(frame, 0), (48, 96)))
    assert found.shape == (48, 96, 3) and not found[:, :16].any() and not found[:, 80:].any()
    np.testing.assert_array_equal(found[:, 16:80], picture_of(frame, 0).rgb())
