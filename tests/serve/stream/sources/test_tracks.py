"""Sound and subtitles: copied bit by bit where MP4 can hold them, otherwise converted, never lost without a word."""

from fractions import Fraction

import av
import numpy as np
import pytest
from clips import BASE, copied, make_clip, picture, tone

from rcil_serve.stream.frames import Selection


def samples(path, track=0):
    """All samples of an audio track [channels, count], and the time of the first."""
    with av.open(str(path)) as container:
        frames = list(container.decode(container.streams.audio[track]))
    return np.concatenate([frame.to_ndarray() for frame in frames], axis=1), float(frames[0].pts * frames[0].time_base)


def packets(path, track=0):
    """Times in milliseconds and contents of the packets of an audio track."""
    with av.open(str(path)) as container:
        found = [packet for packet in container.demux(container.streams.audio[track]) if packet.size]
    return [float(1000 * packet.pts * packet.time_base) for packet in found], [bytes(packet) for packet in found]


def assert_same_packets(path, other, track=0):
    (times, found), (given_times, given) = packets(path, track), packets(other, track)
    assert found == given
    np.testing.assert_allclose(times, given_times, atol=1)


def with_tracks(path, tracks, frames=50, options=None):
    """A clip of two seconds with audio tracks, given as codec, rate, channels and language."""
    with av.open(str(path), "w", options=options or {}) as out:
        stream = out.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.codec_context.time_base = stream.time_base = BASE
        stream.codec_context.max_b_frames = 0
        sounds = []
        for codec, rate, channels, language in tracks:
            layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
            sounds.append(out.add_stream(codec, rate=rate, layout=layout))
            sounds[-1].metadata["language"] = language
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")
            frame.pts, frame.time_base = 512 * index, BASE
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
        for sound, (_, rate, channels, _) in zip(sounds, tracks, strict=True):
            for block in tone(2 * rate, rate, channels):
                out.mux(sound.encode(block))
            out.mux(sound.encode(None))


def test_aac_of_a_transport_stream_is_copied(tmp_path):
    with_tracks(tmp_path / "a.ts", [("aac", 48000, 2, "")])
    source = copied(tmp_path / "a.ts", tmp_path / "out.mp4")
    assert [track.summary for track in source.info.tracks] == ["aac 48000 Hz stereo, copied"]
    (found, begin), (given, given_begin) = samples(tmp_path / "out.mp4"), samples(tmp_path / "a.ts")
    np.testing.assert_array_equal(found, given)
    assert begin == pytest.approx(given_begin, abs=1e-3)


@pytest.mark.parametrize(("codec", "name"), [("libmp3lame", "mp3"), ("ac3", "ac3"), ("flac", "flac")])
def test_what_mp4_can_hold_is_copied(tmp_path, codec, name):
    with_tracks(tmp_path / "a.mkv", [(codec, 48000, 2, "")])
    source = copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    assert source.info.tracks[0].summary == f"{name} 48000 Hz stereo, copied"
    assert_same_packets(tmp_path / "out.mp4", tmp_path / "a.mkv")


@pytest.mark.parametrize("channels", [1, 6])
def test_converted_sound_keeps_its_channels_and_times(tmp_path, channels):
    with_tracks(tmp_path / "a.mkv", [("pcm_s16le", 48000, channels, "")])
    copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    found, begin = samples(tmp_path / "out.mp4")
    assert found.shape[0] == channels
    start = round(-begin * 48000) if begin < 0 else 0
    steady = found[:, start + 4800 : start + 4800 + 48000]
    pitches = np.abs(np.fft.rfft(steady, axis=1)).argmax(axis=1)
    expected = [220 * number for number in range(1, channels + 1)]
    assert [p for p in pitches if p in expected] == [p for p in expected if p != 880], (
        "880 Hz is no bass, so it is lost"
    )
    assert found.shape[1] / 48000 + begin == pytest.approx(2.0, abs=0.05)


def test_all_tracks_and_their_languages_are_kept(tmp_path):
    with_tracks(tmp_path / "a.mkv", [("aac", 48000, 2, "eng"), ("aac", 16000, 1, "deu"), ("pcm_s16le", 8000, 1, "fra")])
    source = copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    assert len(source.info.tracks) == 3
    with av.open(str(tmp_path / "out.mp4")) as out:
        assert [stream.metadata["language"] for stream in out.streams.audio] == ["eng", "deu", "fra"]
        assert [stream.codec_context.sample_rate for stream in out.streams.audio] == [48000, 16000, 8000]
    for track in (0, 1):
        assert_same_packets(tmp_path / "out.mp4", tmp_path / "a.mkv", track)


def test_a_selection_of_converted_sound_starts_with_the_picture(tmp_path):
    with_tracks(tmp_path / "a.mkv", [("pcm_s16le", 48000, 1, "")])
    copied(tmp_path / "a.mkv", tmp_path / "out.mp4", selection=Selection(start=1.0), offset=1.0)
    found, begin = samples(tmp_path / "out.mp4")
    assert abs(begin) < 0.05 and found.shape[1] / 48000 == pytest.approx(1.0, abs=0.06)


def subtitled(path, codec="subrip"):
    make_clip(path.with_suffix(".mp4"), times=[512 * index for index in range(50)])
    with av.open(str(path.with_suffix(".mp4"))) as clip, av.open(str(path), "w") as out:
        video = out.add_stream_from_template(clip.streams.video[0], opaque=True)
        texts = out.add_mux_stream(codec)
        texts.time_base = Fraction(1, 1000)
        texts.metadata["language"] = "deu"
        for packet in clip.demux(clip.streams.video[0]):
            if packet.dts is not None:
                packet.stream = video
                out.mux(packet)
        for begin, text in ((300, "Grüße"), (1200, "two\nlines")):
            packet = av.Packet(text.encode())
            packet.pts = packet.dts = begin
            packet.duration, packet.time_base, packet.stream = 500, Fraction(1, 1000), texts
            out.mux(packet)


def test_text_subtitles_are_kept(tmp_path):
    subtitled(tmp_path / "a.mkv")
    source = copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    assert source.info.tracks[0].summary == "subrip, converted to mov_text" and not source.counts.notices
    with av.open(str(tmp_path / "out.mp4")) as out:
        stream = out.streams.subtitles[0]
        assert stream.metadata["language"] == "deu"
        shown = [
            (float(packet.pts * packet.time_base), bytes(packet)[2:]) for packet in out.demux(stream) if packet.size
        ]
    shown = [(begin, text.decode()) for begin, text in shown if text]
    assert shown == [(pytest.approx(0.3, abs=1e-3), "Grüße"), (pytest.approx(1.2, abs=1e-3), "two\nlines")]


def test_subtitles_that_are_pictures_are_named(tmp_path):
    subtitled(tmp_path / "a.mkv", "hdmv_pgs_subtitle")
    source = copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    assert len(source.counts.notices) == 1 and "left out" in source.counts.notices[0]
    assert "pgs" in source.counts.notices[0] and not source.counts.problems


def test_a_gap_in_converted_sound_stays_a_gap(tmp_path):
    with av.open(str(tmp_path / "a.mkv"), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        sound = out.add_stream("pcm_s16le", rate=8000, layout="mono")
        for index in range(25):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")))
        out.mux(stream.encode(None))
        for block in (*tone(2048, 8000, 1), *tone(2048, 8000, 1, begin=6144)):
            out.mux(sound.encode(block))
    copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    found, begin = samples(tmp_path / "out.mp4")
    level = np.abs(found[0, round(-begin * 8000) if begin < 0 else 0 :])
    assert level[400:1600].max() > 0.1 and level[4800:5600].max() < 0.02 and level[6800:7600].max() > 0.1


@pytest.mark.parametrize("sound_first", [False, True])
def test_sound_hides_no_frame_and_counts_as_no_damage(tmp_path, sound_first):
    with av.open(str(tmp_path / "a.mkv"), "w") as out:
        sound = out.add_stream("pcm_s16le", rate=48000) if sound_first else None
        stream = out.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        sound = sound or out.add_stream("pcm_s16le", rate=48000)
        for index in range(50):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")))
        out.mux(stream.encode(None))
        for block in tone(2 * 48000, 48000, 1):
            out.mux(sound.encode(block))
    source = copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    assert (source.counts.read, source.counts.corrupt, source.counts.notices) == (50, 0, [])
