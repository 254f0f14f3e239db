"""Files that are cut, edited or damaged in places."""

import struct
from fractions import Fraction

import av
import cv2
import numpy as np
import pytest
from av.stream import Disposition
from clips import BASE, make_clip, picture

from rcil_serve.stream.frames import Frame, SourceError
from rcil_serve.stream.sources import container, open_source, reader


def edited(path, first, count, gop):
    """A clip of 30 frames of which an edit list shows `count`, from `first` on; a key frame every `gop` frames."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as out:
        stream = out.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.codec_context.time_base = stream.time_base = BASE
        stream.codec_context.max_b_frames, stream.codec_context.gop_size = 0, gop
        for index in range(30):
            frame = av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")
            frame.pts, frame.time_base = 512 * index, BASE
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    data = bytearray(path.read_bytes())
    at = data.find(b"elst") + 12
    whole, begin = struct.unpack(">Ii", data[at : at + 8])
    assert begin == 0, "the clip shows all of its frames"
    data[at : at + 8] = struct.pack(">Ii", whole * count // 30, first * 512)
    path.write_bytes(bytes(data))


def frames_of(source):
    found = [item for item in source if isinstance(item, Frame)]
    source.close()
    return found


@pytest.mark.parametrize(("first", "count", "gop"), [(5, 25, 30), (5, 10, 30), (12, 8, 5)])
def test_frames_that_an_edit_list_hides_are_not_missing(tmp_path, first, count, gop):
    edited(tmp_path / "a.mp4", first, count, gop)
    source = open_source(str(tmp_path / "a.mp4"))
    assert len(frames_of(source)) == count
    assert source.counts.problems == []


def test_an_edited_file_that_is_cut_off_is_told(tmp_path):
    edited(tmp_path / "a.mp4", 5, 25, 30)
    data = (tmp_path / "a.mp4").read_bytes()
    (tmp_path / "a.mp4").write_bytes(data[: len(data) * 2 // 3])
    source = open_source(str(tmp_path / "a.mp4"))
    assert 0 < len(frames_of(source)) < 25
    assert any("is truncated" in text for text in source.counts.problems)


def test_a_damaged_first_packet_does_not_refuse_the_rest(tmp_path):
    edited(tmp_path / "a.mp4", 0, 30, 5)
    with av.open(str(tmp_path / "a.mp4")) as whole:
        first = next(packet for packet in whole.demux(video=0))
        begin, size = first.pos, first.size
    data = bytearray((tmp_path / "a.mp4").read_bytes())
    data[begin : begin + size] = b"\xff" * size
    (tmp_path / "a.mp4").write_bytes(bytes(data))
    source = open_source(str(tmp_path / "a.mp4"))
    assert source.info.size == (48, 64)
    assert 20 <= len(frames_of(source)) < 30 and source.counts.corrupt


def test_nothing_but_damage_is_not_looked_at_forever(tmp_path, monkeypatch):
    make_clip(tmp_path / "a.mp4", 12)
    monkeypatch.setattr(reader, "whole_frames", lambda stream, packet, counts: iter(()))
    monkeypatch.setattr(reader, "FIRST_FRAME_S", 0.0)
    with pytest.raises(SourceError, match="has no frame that can be decoded"):
        open_source(str(tmp_path / "a.mp4"))


def test_sound_that_nobody_knows_is_left_out(tmp_path):
    make_clip(tmp_path / "a.mkv", sound="pcm_s16le")
    data = (tmp_path / "a.mkv").read_bytes()
    (tmp_path / "a.mkv").write_bytes(data.replace(b"A_PCM/INT/LIT", b"A_ZZZ/ZZZ/ZZZ"))
    with av.open(str(tmp_path / "a.mkv")) as made:
        assert made.streams.audio[0].codec_context is None
    source = open_source(str(tmp_path / "a.mkv"))
    assert source.info.tracks == () and len(frames_of(source)) == 12


@pytest.mark.parametrize(
    "text",
    [
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\na.ts\n#EXT-X-ENDLIST\n",
        b"\xef\xbb\xbf#EXTM3U\n#EXTINF:9,\na.ts\n",
        b"ffconcat version 1.0\nfile a.ts\n",
        b"<MPD xmlns='urn:mpeg:dash:schema:mpd:2011'></MPD>",
        b"<?xml version='1.0'?>" + b" " * 100_000 + b"<mpd></mpd>",
        b"<?xml version='1.0'?><CompositionPlaylist></CompositionPlaylist>",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
        b"s=x\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
    ],
)
def test_lists_of_other_files_never_reach_ffmpeg(tmp_path, monkeypatch, text):
    (tmp_path / "a.mp4").write_bytes(text)
    monkeypatch.setattr(container.av, "open", lambda *given, **options: pytest.fail("FFmpeg opened it"))
    with pytest.raises(SourceError, match="is a playlist"):
        open_source(str(tmp_path / "a.mp4"))


def test_a_video_that_says_so_somewhere_is_no_list(tmp_path):
    make_clip(tmp_path / "a.mp4")
    with (tmp_path / "a.mp4").open("ab") as file:
        file.write(b"\0\0\0\x0cfree<MPD")
    assert len(frames_of(open_source(str(tmp_path / "a.mp4")))) == 12


def test_a_frame_without_a_time_follows_the_one_before(tmp_path):
    times = [0, 512, 20 * 12800, 20 * 12800 + 512, 20 * 12800 + 1024]
    make_clip(tmp_path / "a.mp4", times=times)
    source = open_source(str(tmp_path / "a.mp4"))

    def untimed():
        for number, item in enumerate(list(source._reader)):
            item.pts = None if number == 3 else item.pts
            yield item

    source._items = untimed
    assert [frame.pts for frame in frames_of(source)] == times


def with_cover(path, clip, kinds):
    """Copy the streams of these kinds and add a cover picture."""
    jpeg = cv2.imencode(".jpg", np.full((16, 16, 3), 200, np.uint8))[1].tobytes()
    with av.open(str(clip)) as given, av.open(str(path), "w") as out:
        streams = {one.index: out.add_stream_from_template(one) for one in given.streams if one.type in kinds}
        cover = out.add_stream("mjpeg", rate=1)
        cover.height, cover.width, cover.pix_fmt = 16, 16, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        for packet in given.demux([given.streams[index] for index in streams]):
            if packet.size:
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
        packet = av.Packet(jpeg)
        packet.stream, packet.pts, packet.dts, packet.time_base = cover, 0, 0, Fraction(1, 1000)
        out.mux(packet)


def test_a_cover_picture_is_no_video(tmp_path):
    make_clip(tmp_path / "a.mp4", 20, sound="aac")
    with_cover(tmp_path / "clip.mp4", tmp_path / "a.mp4", ("video", "audio"))
    source = open_source(str(tmp_path / "clip.mp4"))
    assert len(frames_of(source)) == 20 and not source.counts.notices
    with_cover(tmp_path / "song.mp4", tmp_path / "a.mp4", ("audio",))
    with pytest.raises(SourceError, match="has no video stream"):
        open_source(str(tmp_path / "song.mp4"))


def test_a_file_with_two_videos_says_which_one_is_used(tmp_path):
    make_clip(tmp_path / "a.mp4", 20)
    make_clip(tmp_path / "b.mp4", 20, (36, 48))
    with av.open(str(tmp_path / "both.mkv"), "w") as out:
        for name in ("a.mp4", "b.mp4"):
            out.add_stream_from_template(av.open(str(tmp_path / name)).streams.video[0])
        for index, name in enumerate(("a.mp4", "b.mp4")):
            for packet in av.open(str(tmp_path / name)).demux():
                if packet.size:
                    packet.stream = out.streams[index]
                    out.mux(packet)
    source = open_source(str(tmp_path / "both.mkv"))
    assert len(frames_of(source)) == 20
    assert any("2 videos" in notice and "64x48" in notice for notice in source.counts.notices)
