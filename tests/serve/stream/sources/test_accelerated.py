import av
import pytest
from clips import make_clip

from rcil.core.errors import ConfigError
from rcil_serve.stream import hardware
from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.sources import accelerated, open_source
from rcil_serve.stream.sources.accelerated import open_decoded

needs_no_gpu = pytest.mark.skipif(hardware.is_present("cuda"), reason="the machine has an NVIDIA GPU")


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that the machine has an NVIDIA GPU whose driver lets it be opened or not."""
    monkeypatch.setattr(accelerated, "is_present", lambda device: device == "cuda")
    monkeypatch.setattr(accelerated, "absence", lambda device: "")
    monkeypatch.setattr(accelerated, "hwdevices_available", lambda: ["cuda"])


def refusing(hardware):
    if hardware is not None:
        raise av.error.PermissionError(1, "the driver is broken")
    return "by the CPU"


def test_hardware_that_opens_is_preferred(gpu):
    notices = []
    assert open_decoded(lambda hardware: hardware, "auto", "a.mp4", notices) is not None and notices == []
    assert open_decoded(lambda hardware: hardware, "cpu", "a.mp4", notices) is None
    explicit = open_decoded(lambda hardware: hardware, "cuda", "a.mp4", notices)
    assert not explicit.allow_software_fallback, "an explicit request is met or refused"


def test_hardware_that_does_not_open_is_told(gpu):
    notices = []
    assert open_decoded(refusing, "auto", "a.mp4", notices) == "by the CPU"
    assert notices == ["a.mp4 is decoded by the CPU, because cuda cannot be opened: the driver is broken"]


def test_a_file_that_cannot_be_opened_is_not_blamed_on_the_hardware(gpu, tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video" * 100)
    for decoder in ("auto", "cuda"):
        with pytest.raises(SourceError, match="cannot be opened as a video"):
            open_source(str(tmp_path / "a.mp4"), decoder=decoder)


@needs_no_gpu
@pytest.mark.parametrize("isolated", [False, True])
def test_an_explicit_request_that_cannot_be_met_is_an_error(tmp_path, isolated):
    make_clip(tmp_path / "a.mp4", 3)
    with pytest.raises(SourceError, match=r"a\.mp4 cannot be decoded by cuda: there is no NVIDIA GPU") as caught:
        open_source(str(tmp_path / "a.mp4"), isolated=isolated, decoder="cuda")
    assert caught.value.hint == "Use --decoder cpu, or auto."


@needs_no_gpu
def test_a_gpu_that_really_does_not_open_leaves_the_frames_to_the_cpu(tmp_path, monkeypatch):
    """FFmpeg itself fails here, because there is no driver."""
    if "cuda" not in accelerated.hwdevices_available():
        pytest.skip("PyAV's FFmpeg was built without CUDA")
    monkeypatch.setattr(accelerated, "is_present", lambda device: device == "cuda")
    make_clip(tmp_path / "a.mp4", 3)
    source = open_source(str(tmp_path / "a.mp4"), decoder="auto")
    assert len(list(source)) == 3 and "because cuda cannot be opened" in source.counts.notices[0]
    source.close()


def test_an_unknown_decoder_is_refused():
    with pytest.raises(ConfigError, match="unknown decoder 'cudda'\nDid you mean 'cuda'"):
        open_source("a.mp4", decoder="cudda")
