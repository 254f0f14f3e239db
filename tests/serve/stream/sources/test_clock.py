"""Timestamps that are negative, wrap around, restart or jump: intervals are kept, and sound stays in sync."""

from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from clips import contents, copied, make_clip, transport_stream

from rcil_serve.stream.frames import Counts
from rcil_serve.stream.sources.clock import WRAP, Clock

TICK = Fraction(1, 90000)


def packet(stream, seconds, duration=0.04):
    ticks = round(Fraction(seconds) / TICK)
    return SimpleNamespace(stream_index=stream, time_base=TICK, dts=ticks, pts=ticks, duration=round(duration / TICK))


def adjusted(clock, *packets):
    for each in packets:
        clock.adjust(each)
    return [round(float(each.dts * TICK), 3) for each in packets]


def test_times_that_continue_are_not_touched():
    counts = Counts()
    clock = Clock(counts, broadcast=True)
    assert adjusted(clock, packet(0, 5), packet(1, 4.9), packet(0, 5.04), packet(0, 8), packet(1, 5)) == [
        5, 4.9, 5.04, 8, 5
    ]  # fmt: skip
    assert counts.discontinuities == 0


def test_a_restart_continues_and_late_sound_of_the_time_before_stays_there():
    counts = Counts()
    clock = Clock(counts, broadcast=True)
    adjusted(clock, packet(0, 9.96), packet(1, 9.96))
    assert adjusted(clock, packet(0, 0), packet(1, 10), packet(0, 0.04), packet(1, 0.01), packet(1, 0.05)) == [
        10, 10, 10.04, 10.01, 10.05
    ]  # fmt: skip
    assert counts.discontinuities == 1 and counts.jumps == [(10.0, -10.0)]


def test_the_clock_of_a_transport_stream_wraps_exactly():
    counts, end = Counts(), float(WRAP)
    clock = Clock(counts, broadcast=True)
    found = adjusted(clock, packet(0, end - 0.04), packet(1, end - 0.1), packet(0, 0.02), packet(1, 0.5))
    assert found == [round(value, 3) for value in (end - 0.04, end - 0.1, end + 0.02, end + 0.5)]


def test_a_pause_is_an_error_in_a_transport_stream_only():
    for broadcast, expected in ((True, 10.04), (False, 3600)):
        counts = Counts()
        clock = Clock(counts, broadcast=broadcast)
        assert adjusted(clock, packet(0, 10), packet(0, 3600))[1] == expected
        assert counts.discontinuities == broadcast


def check(path, frames):
    found = contents(path)
    steps = np.diff(found.times)
    assert len(found.times) == frames
    np.testing.assert_allclose(steps, 0.04, atol=1e-3)
    assert found.sound_seconds - found.times[-1] == pytest.approx(0.04, abs=0.08), "sound ends with the picture"
    return found


def test_a_stream_that_starts_before_the_wrap_has_no_negative_times(tmp_path):
    transport_stream(tmp_path / "a.ts", float(WRAP) - 1)
    source = copied(tmp_path / "a.ts", tmp_path / "out.mp4")
    assert check(tmp_path / "out.mp4", 50).times[0] == pytest.approx(0, abs=1e-3)
    assert "outputs start at 0" in source.counts.notices[0] and not source.counts.problems


def test_a_stream_that_wraps_later_continues(tmp_path):
    transport_stream(tmp_path / "a.ts", float(WRAP) - 200, 50)
    data = (tmp_path / "a.ts").read_bytes() + transport_stream(tmp_path / "b.ts", float(WRAP) - 198, 50)
    (tmp_path / "c.ts").write_bytes(data)
    copied(tmp_path / "c.ts", tmp_path / "out.mp4")
    assert check(tmp_path / "out.mp4", 100).times[0] < 0.1, "and does not start after 26 hours"


@pytest.mark.parametrize("second", [10.0, 11.0, 5000.0])
def test_recordings_that_were_joined_play_one_after_the_other(tmp_path, second):
    data = transport_stream(tmp_path / "a.ts", 10.0) + transport_stream(tmp_path / "b.ts", second)
    (tmp_path / "c.ts").write_bytes(data)
    source = copied(tmp_path / "c.ts", tmp_path / "out.mp4")
    check(tmp_path / "out.mp4", 100)
    assert source.counts.discontinuities == len(source.counts.jumps) == 1
    assert source.counts.jumps[0][1] == pytest.approx(second - 12, abs=0.1)


def test_frames_before_zero_that_a_file_cannot_time_keep_their_intervals_and_sound(tmp_path):
    make_clip(tmp_path / "a.mp4", times=[512 * index for index in range(50)], sound="aac")
    with av.open(str(tmp_path / "a.mp4")) as given, av.open(
        str(tmp_path / "a.mkv"), "w", options={"avoid_negative_ts": "disabled"}
    ) as out:  # fmt: skip
        streams = {stream.index: out.add_stream_from_template(stream) for stream in given.streams}
        for packet in given.demux():
            if packet.dts is not None:
                late = round(Fraction(6, 5) / packet.time_base)
                packet.dts, packet.pts, packet.stream = (
                    packet.dts - late,
                    packet.pts - late,
                    streams[packet.stream.index],
                )
                out.mux(packet)
    with av.open(str(tmp_path / "a.mkv")) as found:
        assert next(packet for packet in found.demux(video=0)).dts is None
    copied(tmp_path / "a.mkv", tmp_path / "out.mp4")
    assert check(tmp_path / "out.mp4", 50).times[0] == pytest.approx(0, abs=1e-3)
