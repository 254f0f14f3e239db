"""Interlaced and HDR video: filtered, counted and reported; everything else is left alone."""

from fractions import Fraction

import av
import numpy as np
import pytest
from clips import copied, make_clip, picture

from rcil_serve.stream.frames import Frame
from rcil_serve.stream.sources import open_source
from rcil_serve.stream.sources.tone_mapping import HLG, PEAK, PQ, WHITE, compressed, hlg_to_light, light_to_pq, to_sdr

RATE = 25


def woven(index, height=96, width=128):
    """Two fields, half a frame apart, of a bar that moves by 16 pixels per frame; and the bar's two left edges."""
    pixels = np.full((height, width, 3), 30, np.uint8)
    edges = (8 + 12 * index, 14 + 12 * index)
    for field, at in enumerate(edges):
        pixels[field::2, at : at + 20] = 220
    return pixels


def interlaced_clip(path, frames=8, rotation=0):
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=RATE)
        stream.height, stream.width, stream.pix_fmt = 96, 128, "yuv420p"
        stream.codec_context.options = {"preset": "ultrafast", "crf": "4", "x264-params": "tff=1"}
        stream.codec_context.flags |= av.codec.context.Flags.interlaced_dct
        if rotation:
            stream.set_display_rotation(rotation)
        for index in range(frames):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(woven(index), format="rgb24")))
        out.mux(stream.encode(None))


def combing(pixels):
    """Mean difference between neighbouring rows."""
    rows = pixels[..., 0].astype(int)
    return np.abs(np.diff(rows, axis=0))[8:-8].mean()


@pytest.mark.parametrize("rotation", [0, 180])
def test_interlaced_video_is_deinterlaced_and_told(tmp_path, rotation):
    interlaced_clip(tmp_path / "a.mp4", rotation=rotation)
    with av.open(str(tmp_path / "a.mp4")) as given:
        assert all(frame.interlaced_frame for frame in given.decode(video=0))
    source = open_source(str(tmp_path / "a.mp4"))
    frames = [item for item in source if isinstance(item, Frame)]
    source.close()
    assert [round(frame.time, 3) for frame in frames] == [round(index / RATE, 3) for index in range(8)]
    assert source.counts.deinterlaced == 8 and "is interlaced" in source.counts.notices[0]
    assert combing(woven(3)) > 10, "the fields differ"
    assert max(combing(frame.pixels) for frame in frames[1:-1]) < 3
    shown = frames[3].pixels[::-1, ::-1] if rotation else frames[3].pixels
    fields = [(row[:, 0] > 128).tolist() for row in woven(3)[40:42]]
    assert (shown[40, :, 0] > 128).tolist() in fields, "one of both moments is shown"


def test_progressive_sdr_is_left_alone(tmp_path):
    make_clip(tmp_path / "a.mp4")
    source = copied(tmp_path / "a.mp4", tmp_path / "out.mp4")
    assert (source.counts.deinterlaced, source.counts.tone_mapped, source.counts.notices) == (0, 0, [])


def hdr_clip(path, levels, transfer):
    """Grey patches of 32 pixels with these code values from 0 to 1, in 10 bits."""
    luma = np.repeat(np.round(64 + 876 * np.array(levels)).astype(np.uint16), 32)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=RATE)
        stream.height, stream.width, stream.pix_fmt = 64, len(luma), "yuv420p10le"
        context = stream.codec_context
        context.colorspace, context.color_range, context.color_trc, context.color_primaries = 9, 1, transfer, 9
        for index in range(3):
            frame = av.VideoFrame(len(luma), 64, "yuv420p10le")
            for plane, values in zip(frame.planes, (luma, 512, 512), strict=True):
                rows = np.full((plane.height, plane.line_size // 2), 512, np.uint16)
                rows[:, : plane.width] = values
                plane.update(rows.tobytes())
            frame.colorspace, frame.color_range, frame.color_trc, frame.color_primaries = 9, 1, transfer, 9
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


@pytest.mark.parametrize(("transfer", "name"), [(PQ, "PQ"), (HLG, "HLG")])
def test_hdr_is_mapped_to_sdr_and_told(tmp_path, transfer, name):
    levels = light_to_pq(np.array([0, 1, 10, 50, 100, 203, 500, 1000])) if transfer == PQ else np.linspace(0, 1, 8)
    hdr_clip(tmp_path / "a.mkv", levels, transfer)
    source = open_source(str(tmp_path / "a.mkv"))
    frames = list(source)
    source.close()
    assert len(frames) == source.counts.tone_mapped == 3 and f"is HDR ({name})" in source.counts.notices[0]
    codes = np.round(876 * levels) / 876
    expected = 255 * to_sdr(np.repeat(codes[:, None], 3, axis=1), transfer)
    found = frames[0].pixels[32, 16::32].astype(float)
    np.testing.assert_allclose(found, expected, atol=3)
    assert found[0].max() <= 1 and found[-1].min() >= 253, "black and white are reached"


def test_the_curve_keeps_dark_colours_and_ends_at_white():
    light = np.array([0.0, 1.0, 20.0, 80.0])
    np.testing.assert_allclose(compressed(light), light, rtol=1e-6, atol=1e-6)
    assert compressed(np.array(PEAK)) == pytest.approx(WHITE, rel=1e-6)
    steps = compressed(np.linspace(0, PEAK, 500))
    assert (np.diff(steps) > 0).all()


def test_reference_values_of_the_transfer_functions():
    """Values of BT.2100 and BT.2408: PQ 0.5807 and HLG 0.75 are 203 cd/m2."""
    assert light_to_pq(np.array([100.0, 203.0, 1000.0])) == pytest.approx([0.5081, 0.5807, 0.7518], abs=1e-4)
    assert hlg_to_light(np.full(3, 0.75)) == pytest.approx(203, abs=1)


def test_pictures_of_one_clip_may_change_from_progressive_to_interlaced(tmp_path):
    """Broadcasts do: no frame is lost at the change."""
    with av.open(str(tmp_path / "a.mkv"), "w") as out:
        stream = out.add_stream("rawvideo", rate=RATE)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        for index in range(4):
            out.mux(
                stream.encode(
                    av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24").reformat(format="yuv420p")
                )
            )
    from rcil_serve.stream.frames import Counts
    from rcil_serve.stream.sources.filters import FrameFilters

    interlaced_clip(tmp_path / "b.mp4", 3)
    filters, found = FrameFilters("a", Counts()), []
    for name in ("a.mkv", "b.mp4", "a.mkv"):
        with av.open(str(tmp_path / name)) as given:
            for frame in given.decode(video=0):
                found += [made.height for made in filters.of(frame)]
    found += [made.height for made in filters.flush()]
    assert found == [48] * 4 + [96] * 3 + [48] * 4
