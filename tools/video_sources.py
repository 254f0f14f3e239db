"""Make files and streams of many kinds, send them through the sources and outputs of rcil-serve, and check each one.

Examples:
    python tools/video_sources.py
    python tools/video_sources.py --only hls --only pal --markdown docs/video-sources.md

Needs ffmpeg and ffprobe; the RTSP row also needs rtsp-server-perl (Debian's package of that name), and is skipped
without it. For every source the frames of the written file are compared with those that ffprobe finds in the source:

  frames   written, of those in the source; live sources may start later
  times    largest difference between an interval in the source and in the file, in milliseconds; for live sources that
           of 95 %, as a server corrects its clock once after the start, and the number of intervals that differ more
  sound    tracks kept, and by how many milliseconds sound and picture are further apart at the end than in the source;
           for live sources between a flash and a beep
  colours  mean difference of the first frame to ffmpeg's conversion to RGB in blocks of 8 x 8 pixels, from 0 to 255
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from rcil_serve.stream.frames import Frame, Selection, Source
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.sources import open_source
from rcil_serve.stream.sources.live import LiveOptions

PICTURE = ["-f", "lavfi", "-i", "testsrc=s=160x120:r=25:d=2"]
TONE = ["-f", "lavfi", "-i", "sine=440:r=48000:d=2"]
SURROUND = ["-f", "lavfi", "-i", "aevalsrc=0.1*sin(900*t)|0.1*sin(1200*t)|0|0|0|0:c=5.1:s=48000:d=2"]
H264 = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]
HDR = "setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc="
FLASHES = "color=black:s=160x120:r=25:d=20,drawbox=t=fill:color=white:enable='lt(mod(t,1),0.2)'"
BEEPS = "aevalsrc=if(lt(mod(t\\,1)\\,0.2)\\,0.5*sin(2764*t)\\,0):s=48000:d=20"
LIVE_FRAMES = 150


@dataclass(frozen=True)
class Case:
    """A file that ffmpeg makes."""

    name: str
    file: str
    arguments: tuple[str, ...]
    reference: str = ""
    """Filter for ffmpeg's conversion to RGB that the first frame is compared with; `none` leaves the comparison out."""
    notice: str = ""
    """What the receipt must say."""
    colours: float = 1.5
    turn: int = 0
    """Degrees that players turn the picture; ffmpeg writes them only when it copies a stream."""


@dataclass
class Row:
    """What was found for a source."""

    name: str
    frames: str = ""
    times: str = ""
    sound: str = ""
    colours: str = "–"
    notices: str = ""
    ok: bool = True

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        return self.name, self.frames, self.times, self.sound, self.colours, self.notices, "ok" if self.ok else "WRONG"


CASES = [
    Case("MP4, H.264, AAC", "a.mp4", (*PICTURE, *TONE, *H264, "-c:a", "aac")),
    Case("MKV, H.264 with B-frames at 29.97 fps, MP3", "a.mkv",
         ("-f", "lavfi", "-i", "testsrc=s=160x120:r=30000/1001:d=2", *TONE, "-c:v", "libx264", "-bf", "3",
          "-pix_fmt", "yuv420p", "-c:a", "libmp3lame")),
    Case("MP4, HEVC with 10 bits, AC-3 5.1", "hevc.mp4",
         (*PICTURE, *SURROUND, "-c:v", "libx265", "-x265-params", "log-level=error", "-pix_fmt", "yuv420p10le",
          "-c:a", "ac3")),
    Case("WebM, VP9, Opus", "a.webm",
         (*PICTURE, *TONE, "-c:v", "libvpx-vp9", "-deadline", "realtime", "-c:a", "libopus")),
    Case("MP4, AV1", "av1.mp4", (*PICTURE, "-c:v", "libsvtav1", "-preset", "12", "-pix_fmt", "yuv420p")),
    Case("AVI, Motion JPEG, PCM", "a.avi", (*PICTURE, *TONE, "-c:v", "mjpeg", "-q:v", "2", "-c:a", "pcm_s16le")),
    Case("MOV, ProRes, PCM 5.1", "a.mov", (*PICTURE, *SURROUND, "-c:v", "prores_ks", "-c:a", "pcm_s24le")),
    Case("FLV, H.264, MP3", "a.flv", (*PICTURE, *TONE, *H264, "-c:a", "libmp3lame")),
    Case("WMV", "a.wmv", (*PICTURE, *TONE, "-c:v", "wmv2", "-q:v", "2", "-c:a", "wmav2")),
    Case("MPEG-TS, H.264, AAC", "a.ts", (*PICTURE, *TONE, *H264, "-c:a", "aac")),
    Case("MPEG-TS, PAL 720x576 16:11 interlaced, MP2", "pal.ts",
         ("-f", "lavfi", "-i", "testsrc=s=720x576:r=50:d=2", *TONE, "-vf", "interlace,setsar=16/11", "-c:v",
          "mpeg2video", "-q:v", "2", "-flags", "+ildct+ilme", "-c:a", "mp2"), "bwdif=mode=send_frame", "interlaced"),
    Case("MKV, H.264 with B-frames, the sound before the picture", "first.mkv",
         (*TONE, *PICTURE, "-map", "0", "-map", "1", "-c:v", "libx264", "-bf", "3", "-pix_fmt", "yuv420p", "-c:a",
          "aac")),
    Case("MKV, variable frame times", "vfr.mkv",
         (*PICTURE, "-vf", "select='not(mod(n,3))+gt(n,30)'", "-fps_mode", "vfr", *H264)),
    Case("MKV, two languages and subtitles", "tracks.mkv",
         (*PICTURE, *TONE, *TONE, "-i", "SUBTITLES", "-map", "0", "-map", "1", "-map", "2", "-map", "3", *H264,
          "-c:a:0", "aac", "-c:a:1", "pcm_s16le", "-metadata:s:a:1", "language=deu", "-c:s", "srt")),
    Case("MP4, turned by 90 degrees", "turned.mp4", (*PICTURE, *H264), turn=90),
    Case("MOV, turned by 270 degrees, pixels 16:11", "turned.mov", (*PICTURE, "-vf", "setsar=16/11", *H264), turn=270),
    Case("MP4, HDR with PQ", "pq.mp4",
         (*PICTURE, "-vf", f"{HDR}smpte2084", "-c:v", "libx265", "-x265-params", "log-level=error", "-pix_fmt",
          "yuv420p10le"), "none", "HDR (PQ)"),
    Case("MP4, HDR with HLG", "hlg.mp4",
         (*PICTURE, "-vf", f"{HDR}arib-std-b67", "-c:v", "libx265", "-x265-params", "log-level=error", "-pix_fmt",
          "yuv420p10le"), "none", "HDR (HLG)"),
]  # fmt: skip


def run(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout


def make(case: Case, folder: Path) -> Path:
    """Make the file of a case."""
    texts = folder / "texts.srt"
    texts.write_text("1\n00:00:00,500 --> 00:00:01,000\nhello\n\n2\n00:00:01,200 --> 00:00:01,900\nworld\n")
    arguments = [str(texts) if argument == "SUBTITLES" else argument for argument in case.arguments]
    path = folder / case.file
    run("ffmpeg", "-v", "error", "-y", *arguments, str(path))
    if case.turn:
        level = path.rename(path.with_stem("level"))
        run("ffmpeg", "-v", "error", "-y", "-i", str(level), "-c", "copy", "-metadata:s:v", f"rotate={case.turn}",
            str(path))  # fmt: skip
    return path


def frame_times(path: str) -> np.ndarray:
    """Presentation times in seconds of all frames of a file, as ffprobe sees them."""
    fields = ["-select_streams", "v:0", "-show_entries", "frame=best_effort_timestamp_time", "-of", "csv=p=0"]
    lines = run("ffprobe", "-v", "error", *fields, path).decode().split()
    return np.array([float(line.strip(",")) for line in lines if line.strip(",") not in ("", "N/A")])


def sound_end(path: str) -> float | None:
    """Time in seconds at which the first audio track ends; None without sound."""
    fields = ["-select_streams", "a:0", "-show_entries", "packet=pts_time,duration_time", "-of", "csv=p=0"]
    lines = run("ffprobe", "-v", "error", *fields, path).decode().split()
    ends = [sum(float(part) for part in line.split(",")[:2] if part not in ("", "N/A")) for line in lines]
    return max(ends) if ends else None


def copy(text: str, out: Path, most: int | None = None) -> tuple[Source, Frame]:
    """Write a source to a file without a model; returns the source and its first frame."""
    source = open_source(text, Selection(most=most), live=LiveOptions(timeout=10, attempts=1))
    movie, first = Movie(out, source.info), None
    for item in source:
        if isinstance(item, Frame):
            first = first or item
            movie.write(item.picture, item)
        else:
            movie.write_sound(item)
    movie.finish()
    source.close()
    assert first is not None
    return source, first


def colour_difference(path: str, pixels: np.ndarray, reference: str) -> float:
    """Mean difference to ffmpeg's first frame, in blocks of 8 x 8 pixels."""
    filters = ["-vf", reference] if reference else []
    form = ["-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    data = run("ffmpeg", "-v", "error", "-i", path, *filters, *form, "-")
    height, width, _ = pixels.shape
    difference = np.frombuffer(data, np.uint8).reshape(pixels.shape).astype(float) - pixels
    return float(np.abs(difference.reshape(height // 8, 8, width // 8, 8, 3).mean(axis=(1, 3))).mean())


def pixel_shape(path: str, turn: int = 0) -> str:
    """Width and height of a pixel, `16:11`, after a turn of the picture; square if the file does not say."""
    fields = ["-select_streams", "v:0", "-show_entries", "stream=sample_aspect_ratio", "-of", "csv=p=0"]
    found = run("ffprobe", "-v", "error", *fields, path).decode().replace(",", " ").split()
    width, _, height = (found[0] if found and found[0] not in ("N/A", "0:1") else "1:1").partition(":")
    return f"{height}:{width}" if turn in (90, 270) else f"{width}:{height}"


def check_file(
    name: str, text: str, out: Path, *, reference: str = "", notice: str = "", limit: float = 1.5, turn: int = 0
) -> Row:
    """Copy a file or a finite address, and compare the copy with what ffprobe finds in the source."""
    source, first = copy(text, out)
    row = Row(name, notices="; ".join(part.partition(" is ")[2] or part for part in source.counts.notices))
    expected, found = frame_times(text), frame_times(str(out))
    row.frames = f"{len(found)} of {len(expected)}"
    row.ok = len(found) == len(expected) and not source.counts.problems and not source.counts.corrupt
    if row.ok:
        error = 1000 * float(np.abs(np.diff(found) - np.diff(expected)).max())
        row.times, row.ok = f"{error:.2f}", error <= 1
    row = add_sound(row, text, out, source, expected, found)
    if reference != "none":
        difference = colour_difference(text, first.pixels, reference)
        row.colours, row.ok = f"{difference:.2f}", row.ok and difference <= limit
    told = notice in " ".join(source.counts.notices)
    row.ok = row.ok and told and pixel_shape(str(out)) == pixel_shape(text, turn)
    return row


def add_sound(row: Row, text: str, out: Path, source: Source, expected: np.ndarray, found: np.ndarray) -> Row:
    kept = len(source.info.tracks)
    with av.open(str(out)) as written:
        there = len(written.streams.audio) + len(written.streams.subtitles)
    given, end = sound_end(text), sound_end(str(out))
    row.sound = f"{kept} tracks" if kept != 1 else "1 track"
    row.ok = row.ok and kept == there and (given is None) == (end is None)
    if given is not None and end is not None:
        drift = 1000 * abs((end - found[-1]) - (given - expected[-1]))
        row.sound += f", {drift:.0f} ms"
        row.ok = row.ok and drift <= 50
    return row


def joined(folder: Path, out: Path) -> Row:
    """A recording whose clock starts again in the middle."""
    part = make(CASES[9], folder).read_bytes()
    (folder / "joined.ts").write_bytes(part * 2)
    source, _ = copy(str(folder / "joined.ts"), out)
    found = frame_times(str(out))
    error = 1000 * float(np.abs(np.diff(found) - 0.04).max())
    drift = 1000 * abs((sound_end(str(out)) or 0) - found[-1] - 0.04)
    good = len(found) == 100 and error <= 1 and drift <= 60 and source.counts.discontinuities == 1
    told = f"{source.counts.discontinuities} discontinuity"
    return Row("MPEG-TS, two recordings joined", f"{len(found)} of 100", f"{error:.2f}", f"1 track, {drift:.0f} ms",
               notices=told, ok=good)  # fmt: skip


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP, and `/camera` as multipart JPEG at 10 fps; yields the address."""
    jpeg = run("ffmpeg", "-v", "error", *PICTURE, "-frames:v", "1", "-f", "image2", "-c:v", "mjpeg", "-")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/camera":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg)
                    self.wfile.write(head + jpeg + b"\r\n")
                    time.sleep(0.1)

        def log_message(self, *given: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def hls(folder: Path, out: Path) -> Row:
    run("ffmpeg", "-v", "error", "-y", *PICTURE, *TONE, *H264, "-c:a", "aac", "-f", "hls", "-hls_time", "1",
        "-hls_list_size", "0", str(folder / "list.m3u8"))  # fmt: skip
    with served(folder) as address:
        return check_file("HLS over HTTP, H.264, AAC", f"{address}/list.m3u8", out)


def pictures(folder: Path, out: Path) -> Row:
    """Multipart JPEG has no timestamps: 15 frames at 10 fps take 1.4 s."""
    with served(folder) as address:
        copy(f"{address}/camera", out, most=15)
    found = frame_times(str(out))
    error = 1000 * abs(float(found[-1] - found[0]) - 1.4)
    return Row("HTTP, multipart JPEG at 10 fps (live)", f"{len(found)} of 15", f"{error:.0f} in all", "0 tracks",
               ok=len(found) == 15 and error < 400)  # fmt: skip


def live(name: str, address: str, out: Path, frames: int = LIVE_FRAMES, *, settles: bool = False) -> Row:
    """A live source at 25 fps; it flashes and beeps once per second.

    Args:
        name: Name of the source.
        address: Its address.
        out: The file to write.
        frames: Number of frames to read.
        settles: Only the last two beeps count: RTP streams are in sync once the sender has reported its clocks.
    """
    source, _ = copy(address, out, most=frames)
    found = frame_times(str(out))
    errors = 1000 * np.abs(np.diff(found) - 0.04)
    error, jumps = float(np.percentile(errors, 95)), int((errors > 1.5).sum())
    flashes, beeps = starts(out, "video"), starts(out, "audio")
    heard = [flash for flash in flashes if beeps and beeps[0] - 0.5 < flash < beeps[-1] + 0.5]
    apart = [1000 * min(abs(flash - beep) for beep in beeps) for flash in heard]
    counted = apart[-2:] if settles else apart
    row = Row(name, f"{len(found)} of {frames}", f"{error:.2f}", f"{len(source.info.tracks)} track")
    row.sound += f", {max(counted):.0f} ms" if apart else ", no beep found"
    row.sound += f", at first {apart[0]:.0f} ms" if settles and apart else ""
    row.times += f", {jumps} corrected" if jumps else ""
    row.ok = len(found) == frames and error <= 1.5 and jumps <= 4 and bool(apart) and max(counted) <= 50
    return row


def starts(path: Path, kind: str) -> list[float]:
    """Times in seconds at which the picture becomes bright or the sound loud."""
    found, on = [], True
    with av.open(str(path)) as container:
        for frame in container.decode(**{kind: 0}):
            if isinstance(frame, av.VideoFrame):
                levels, step = [float(frame.to_ndarray(format="gray").mean() > 128)], 0.04
            else:
                blocks = np.abs(frame.to_ndarray()[0][: frame.samples // 64 * 64].reshape(-1, 64)).max(axis=1)
                levels, step = [float(block > 0.1) for block in blocks], 64 / frame.sample_rate
            for index, level in enumerate(levels):
                if level and not on:
                    found.append(float(frame.time) + index * step)
                on = bool(level)
    return found


def long_clip(folder: Path) -> Path:
    path = folder / "long.mp4"
    if not path.exists():
        inputs = ["-f", "lavfi", "-i", FLASHES, "-f", "lavfi", "-i", BEEPS]
        run("ffmpeg", "-v", "error", *inputs, *H264, "-g", "10", "-bf", "0", "-c:a", "aac", str(path))
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(240):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.25)
    raise SystemExit(f"nothing listens at port {port}")


@contextlib.contextmanager
def process(*command: str) -> Iterator[None]:
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        started.terminate()
        started.wait()


def tcp(folder: Path, out: Path) -> Row:
    address = f"tcp://127.0.0.1:{free_port()}"
    push = ["ffmpeg", "-v", "error", "-re", "-i", str(long_clip(folder)), "-c", "copy", "-f", "mpegts"]
    with process(*push, f"{address}?listen=1"):
        time.sleep(3)
        return live("MPEG-TS over TCP, H.264, AAC (live)", address, out)


def rtsp(folder: Path, out: Path) -> Row | None:
    if shutil.which("rtsp-server-perl") is None:
        print("RTSP is skipped: rtsp-server-perl is not installed", file=sys.stderr)
        return None
    clients, sources = free_port(), free_port()
    push = ["ffmpeg", "-v", "error", "-re", "-i", str(long_clip(folder)), "-c", "copy", "-f", "rtsp"]
    with process("rtsp-server-perl", "-c", str(clients), "-s", str(sources)):
        wait_for(sources)
        with process(*push, f"rtsp://127.0.0.1:{sources}/camera"):
            time.sleep(4)
            return live("RTSP, H.264, AAC (live)", f"rtsp://127.0.0.1:{clients}/camera", out, 300, settles=True)


def checks(folder: Path) -> dict[str, Callable[[], Row | None]]:
    """All checks by name."""
    out = folder / "out.mp4"

    def check(case: Case) -> Row:
        path = str(make(case, folder))
        return check_file(
            case.name, path, out, reference=case.reference, notice=case.notice, limit=case.colours, turn=case.turn
        )

    found: dict[str, Callable[[], Row | None]] = {case.name: functools.partial(check, case) for case in CASES}
    streams = {"joined": joined, "hls": hls, "multipart jpeg": pictures, "tcp": tcp, "rtsp": rtsp}
    return found | {name: functools.partial(action, folder, out) for name, action in streams.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="run checks whose name contains this")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    for tool in ("ffmpeg", "ffprobe"):
        if shutil.which(tool) is None:
            print(f"{tool} is not installed", file=sys.stderr)
            return 2
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for title, action in checks(Path(name)).items():
            if options.only and not any(part.lower() in title.lower() for part in options.only):
                continue
            row = action()
            if row is not None:
                rows.append(row)
                print(" | ".join(row.cells()), flush=True)
    if options.markdown:
        options.markdown.write_text(table(rows))
    return 0 if rows and all(row.ok for row in rows) else 1


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    head = "| source | frames | times, ms | sound | colours | receipt says | |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(row.cells())} |\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
