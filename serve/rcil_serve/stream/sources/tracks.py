"""Sound and subtitles of a source, as packets that an MP4 file can hold: copied where possible, otherwise converted."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import av
import av.error
import av.filter
from av.bitstream import BitStreamFilterContext

COPIED = ("aac", "mp3", "ac3", "eac3", "opus", "alac", "flac")
"""Audio codecs that players accept in MP4 without conversion; others are converted to AAC."""
TEXTS = ("mov_text", "subrip", "ass", "ssa", "webvtt", "text")
"""Subtitle codecs that consist of text; others are pictures, which MP4 cannot hold."""
RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000)
"""Sample rates of AAC."""
LAYOUTS = {1: "mono", 2: "stereo", 3: "3.0", 4: "4.0", 5: "5.0", 6: "5.1", 7: "7.1", 8: "7.1"}
"""Channel layouts of AAC, by number of channels; seven get a silent one, more become stereo."""
CHANNEL_BITS = 64_000
MAX_SILENCE = 10.0
"""Gaps in the sound up to this many seconds are filled with silence."""
SAMPLES = 1024
"""Samples per packet of AAC."""


@dataclass
class Track:
    """An audio or subtitle track of an output."""

    template: Any
    """PyAV stream whose parameters the output copies."""
    summary: str
    """For receipts: `aac 48000 Hz stereo, copied`."""
    language: str = ""
    extradata: bytes | None = None
    """Decoder configuration that the template lacks; known after the first packet."""


class TrackReader(Protocol):
    """Turns the packets of one stream of a source into packets of a track."""

    stream: Any
    track: Track

    @property
    def ready(self) -> bool:
        """Whether the track is known; if not, another packet is needed."""

    def packets(self, packet: Any) -> list[Any]:
        """Convert a packet; a damaged one becomes a gap."""

    def flush(self) -> list[Any]:
        """Return the remaining packets at the end of the source."""


class CopiedTrack:
    """A stream whose packets are copied. AAC with ADTS headers, as in MPEG-TS, loses them.

    Args:
        stream: Audio or subtitle stream of the source.
        kind: Description of the codec.
    """

    def __init__(self, stream: Any, kind: str) -> None:
        self.stream = stream
        self.track = Track(stream, f"{kind}, copied", _language(stream))
        bare = _codec(stream) == "aac" and not stream.codec_context.extradata
        self._unwrap = BitStreamFilterContext("aac_adtstoasc", stream) if bare else None

    @property
    def ready(self) -> bool:
        """See `TrackReader.ready`."""
        return self._unwrap is None or self.track.extradata is not None

    def packets(self, packet: Any) -> list[Any]:
        """See `TrackReader.packets`."""
        if self._unwrap is None:
            return [packet]
        base = packet.time_base
        try:
            found = self._unwrap.filter(packet)
        except av.error.FFmpegError:
            return []
        for unwrapped in found:
            unwrapped.time_base = base
            if self.track.extradata is None and unwrapped.has_sidedata("new_extradata"):
                self.track.extradata = bytes(unwrapped.get_sidedata("new_extradata"))
        return list(found)

    def flush(self) -> list[Any]:
        """See `TrackReader.flush`."""
        return []


class ConvertedSound:
    """Sound that is converted to AAC with the same number of channels.

    Args:
        stream: Audio stream of the source.
        kind: Description of the codec.
    """

    ready = True

    def __init__(self, stream: Any, kind: str) -> None:
        context = stream.codec_context
        self.stream = stream
        self._rate = min(RATES, key=lambda rate: abs(rate - context.sample_rate))
        self._layout = LAYOUTS.get(context.layout.nb_channels, "stereo")
        self._scratch = av.open(io.BytesIO(), "w", format="nut")
        channels = av.AudioLayout(self._layout).nb_channels
        self._encoder = self._scratch.add_stream(
            "aac", rate=self._rate, layout=self._layout, bit_rate=CHANNEL_BITS * channels
        )
        self._encoder.codec_context.time_base = Fraction(1, self._rate)
        self._scratch.start_encoding()
        self._graph: Any = None
        self._end: float | None = None
        self.track = Track(self._encoder, f"{kind}, converted to aac {self._rate} Hz {self._layout}", _language(stream))

    def packets(self, packet: Any) -> list[Any]:
        """See `TrackReader.packets`."""
        try:
            frames = list(packet.decode())
        except av.error.FFmpegError:
            return []
        found = []
        for frame in frames:
            if frame.pts is None:
                continue
            begin = float(frame.pts * frame.time_base)
            if self._end is not None and not -MAX_SILENCE < begin - self._end < MAX_SILENCE:
                found += self._drain()
            self._end = begin + frame.samples / frame.sample_rate
            found += self._encoded(self._resampled(frame))
        return found

    def _resampled(self, frame: Any) -> Iterable[Any]:
        if self._graph is None:
            self._graph = self._new_graph(frame)
        try:
            self._graph.push(frame)
            return _pulled(self._graph)
        except av.error.FFmpegError:  # format or layout changed
            drained = list(self._drained_frames())
            self._graph = self._new_graph(frame)
            self._graph.push(frame)
            return [*drained, *_pulled(self._graph)]

    def _new_graph(self, frame: Any) -> Any:
        graph = av.filter.Graph()
        nodes = [
            graph.add_abuffer(
                sample_rate=frame.sample_rate,
                format=frame.format.name,
                layout=frame.layout.name,
                time_base=frame.time_base,
            ),
            graph.add("aresample", "async=1"),
            graph.add("aformat", f"sample_fmts=fltp:sample_rates={self._rate}:channel_layouts={self._layout}"),
            graph.add("asetnsamples", f"n={SAMPLES}:p=0"),
            graph.add("abuffersink"),
        ]
        graph.link_nodes(*nodes).configure()
        return graph

    def _drained_frames(self) -> Iterable[Any]:
        graph, self._graph = self._graph, None
        if graph is None:
            return []
        graph.push(None)
        return _pulled(graph)

    def _drain(self) -> list[Any]:
        return self._encoded(self._drained_frames())

    def _encoded(self, frames: Iterable[Any]) -> list[Any]:
        return [packet for frame in frames for packet in self._encoder.encode(frame)]

    def flush(self) -> list[Any]:
        """See `TrackReader.flush`."""
        return [*self._drain(), *self._encoder.encode(None)]


class ConvertedText:
    """Text subtitles that are converted to MP4's timed text.

    Args:
        stream: Subtitle stream of the source.
        kind: Description of the codec.
    """

    ready = True

    def __init__(self, stream: Any, kind: str) -> None:
        self.stream = stream
        context = stream.codec_context
        context.open(strict=False)
        self._scratch = av.open(io.BytesIO(), "w", format="mp4", options={"movflags": "delay_moov+frag_keyframe"})
        self._encoder = self._scratch.add_stream("mov_text")
        self._encoder.codec_context.subtitle_header = context.subtitle_header
        self._encoder.codec_context.time_base = self._encoder.time_base = Fraction(1, 1000)
        self._encoder.codec_context.open()
        self._scratch.start_encoding()
        self.track = Track(self._encoder, f"{kind}, converted to mov_text", _language(stream))

    def packets(self, packet: Any) -> list[Any]:
        """See `TrackReader.packets`."""
        try:
            text = self.stream.decode2(packet)
            if text is None or not len(text):
                return []
            encoded = self._encoder.codec_context.encode_subtitle(text)
        except (av.error.FFmpegError, ValueError):
            return []
        encoded.time_base = packet.time_base
        encoded.pts = encoded.dts = packet.pts if packet.pts is not None else packet.dts
        encoded.duration = packet.duration
        return [encoded]

    def flush(self) -> list[Any]:
        """See `TrackReader.flush`."""
        return []


def packed_track(track: Track) -> tuple[dict[str, Any], bytes]:
    """Describe a track to another process: JSON-ready fields, and a small file that holds its parameters."""
    extradata = track.extradata or track.template.codec_context.extradata or b""
    fields = {
        "summary": track.summary,
        "language": track.language,
        "type": track.template.type,
        "extradata": extradata.hex(),
    }
    file = io.BytesIO()
    if track.template.type == "audio":
        with av.open(file, "w", format="matroska") as container:
            stream = container.add_stream_from_template(track.template)
            if track.extradata:
                stream.codec_context.extradata = track.extradata
            packet: Any = av.Packet(bytes(16))  # FFmpeg does not open a file without packets
            packet.pts = packet.dts = 0
            packet.time_base, packet.stream = track.template.time_base, stream
            container.mux(packet)
    return {**fields, "bytes": len(file.getvalue())}, file.getvalue()


def unpacked_track(fields: dict[str, Any], data: bytes) -> Track:
    """The track that `packed_track` describes."""
    template: Any
    if fields["type"] == "audio":
        template = av.open(io.BytesIO(data), format="matroska").streams.audio[0]
    else:
        template = av.open(io.BytesIO(), "w", format="mp4").add_stream("mov_text")
    extradata = bytes.fromhex(fields["extradata"]) or None
    return Track(template, fields["summary"], fields["language"], extradata)


def open_tracks(streams: Iterable[Any]) -> tuple[list[TrackReader], list[str]]:
    """Open audio tracks and text subtitles of a container; also return what cannot be kept, for messages."""
    readers: list[TrackReader] = []
    lost = []
    for stream in streams:
        try:
            reader = _open_track(stream)
        except (av.error.FFmpegError, ValueError, TypeError) as error:
            lost.append(f"{stream.type} track {stream.index} is left out: {error}")
            continue
        if reader is None:
            name = "an unknown codec" if stream.codec_context is None else stream.codec_context.name
            lost.append(f"{stream.type} track {stream.index} is left out: MP4 cannot hold {name}")
        else:
            readers.append(reader)
    return readers, lost


def _open_track(stream: Any) -> TrackReader | None:
    context = stream.codec_context
    if context is None:
        return None
    codec = _codec(stream)
    if stream.type == "subtitle":
        if codec not in TEXTS:
            return None
        return CopiedTrack(stream, codec) if codec == "mov_text" else ConvertedText(stream, codec)
    if not context.sample_rate or not context.layout.nb_channels:
        return None
    kind = f"{codec} {context.sample_rate} Hz {context.layout.name}"
    return CopiedTrack(stream, kind) if codec in COPIED else ConvertedSound(stream, kind)


def _codec(stream: Any) -> str:
    """Name of the codec, which several decoders may share: `mp3` for `mp3float`."""
    return str(stream.codec_context.codec.canonical_name)


def _language(stream: Any) -> str:
    return str(stream.metadata.get("language", ""))


def _pulled(graph: Any) -> Iterable[Any]:
    """Frames that a filter graph has finished."""
    found = []
    while True:
        try:
            found.append(graph.pull())
        except (av.error.BlockingIOError, av.error.EOFError):
            return found
