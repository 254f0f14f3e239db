"""The table of sources in docs/video.md: every file and stream that ffmpeg can make here passes its checks."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/video_sources.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MP4", "MKV", "WebM", "AVI", "MOV", "FLV", "WMV", "MPEG-TS", "joined", "hls", "tcp"])
def test_sources_are_right(name):
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    done = subprocess.run([sys.executable, str(TOOL), "--only", name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_rtsp_is_right():
    if shutil.which("ffmpeg") is None or shutil.which("rtsp-server-perl") is None:
        pytest.skip("ffmpeg or rtsp-server-perl is not installed")
    done = subprocess.run([sys.executable, str(TOOL), "--only", "rtsp"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_ffmpeg_it_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)}
    )
    assert done.returncode == 2 and "ffmpeg is not installed" in done.stderr
