import numpy as np

from rcil_serve.stream.frames import Counts, Selection
from rcil_serve.stream.sources.container import FrameSelector


class Decoded:
    """A decoded frame of 4 x 6 pixels whose first row is white."""

    def to_ndarray(self, **options):
        pixels = np.zeros((4, 6, 3), np.uint8)
        pixels[0] = 255
        return pixels


def test_every_decoded_frame_is_either_read_or_left_out():
    counts = Counts()
    selector = FrameSelector(Selection(stride=2, start=0.2, most=2), counts, (4, 6))
    frames = []
    while not selector.over:
        frames.append(selector.select(Decoded(), 10 * selector.index, selector.index / 10, 0))
    assert [frame and (frame.index, frame.pts) for frame in frames] == [None, None, (2, 20), None, (4, 40), None]
    assert (counts.read, counts.left_out, selector.index) == (2, 4, 6)


def test_selected_frames_are_upright_and_have_one_size():
    selector = FrameSelector(Selection(), Counts(), (6, 4))
    turned = selector.select(Decoded(), 0, 0.0, 90).pixels
    assert turned.shape == (6, 4, 3) and turned[:, 0].all() and not turned[:, 1:].any()
    other = selector.select(Decoded(), 1, 0.1, 0).pixels
    assert other.shape == (6, 4, 3), "a frame of another size is letterboxed"
