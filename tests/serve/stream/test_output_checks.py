"""What is read is never overwritten."""

from fractions import Fraction

import numpy as np
import pytest
import typer
from clips import make_clip, picture
from served import FIXED, write_model
from typer.testing import CliRunner

from rcil.core.errors import ConfigError
from rcil.core.images import write_image
from rcil_serve.cli.dry_run import diff_dry_run, video_dry_run
from rcil_serve.diff.run import DiffRequest, run_diff
from rcil_serve.images.command import images
from rcil_serve.stream.output_checks import check_no_overwrite
from rcil_serve.stream.outputs.sink import Targets
from rcil_serve.video.run import VideoRequest, run_video


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model.onnx", FIXED)


def request_of(model, source, receipt, **targets):
    return VideoRequest(str(source), model, Targets(**targets), receipt, rate=Fraction(10), device="cpu", threads=1)


def refused(request, words):
    """Both the run and the dry run say no."""
    for run in (run_video, video_dry_run):
        with pytest.raises(ConfigError, match=words) as caught:
            run(request)
        assert caught.value.hint


@pytest.mark.parametrize("source", ["in.mp4", "link.mp4", "folder/../in.mp4"])
def test_the_source_is_not_an_output(model, tmp_path, source):
    make_clip(tmp_path / "in.mp4", 3)
    (tmp_path / "link.mp4").symlink_to("in.mp4")
    (tmp_path / "folder").mkdir()
    before = (tmp_path / "in.mp4").read_bytes()
    refused(
        request_of(model, tmp_path / source, tmp_path / "r.json", video=tmp_path / "in.mp4"),
        "the video .* would overwrite",
    )
    refused(
        request_of(model, tmp_path / source, tmp_path / "in.mp4", records=tmp_path / "a"), "the receipt .* overwrite"
    )
    assert (tmp_path / "in.mp4").read_bytes() == before


def test_what_a_killed_run_left_is_not_overwritten_while_it_is_read(model, tmp_path):
    make_clip(tmp_path / "a.part.mp4", 3)
    refused(
        request_of(model, tmp_path / "a.part.mp4", tmp_path / "r.json", video=tmp_path / "a.mp4"),
        r"overwrite .*a\.part",
    )


def test_the_model_and_the_list_of_images_are_inputs_too(model, tmp_path):
    write_image(tmp_path / "0.png", picture(0, 8, 8))
    (tmp_path / "list.txt").write_text("0.png\n")
    for path in (model, tmp_path / "list.txt", tmp_path / "0.png"):
        refused(
            request_of(model, tmp_path / "list.txt", tmp_path / "r.json", timeline=path), "the timeline .* overwrite"
        )


def test_outputs_do_not_share_a_name(model, tmp_path):
    make_clip(tmp_path / "in.mp4", 3)
    request = request_of(model, tmp_path / "in.mp4", tmp_path / "a", records=tmp_path / "x" / ".." / "a")
    refused(request, "the records and the receipt would both be written")


@pytest.mark.parametrize("masks", ["shots", "link", "site/masks"])
def test_masks_do_not_go_where_pictures_or_labels_are(model, tmp_path, masks):
    for name in ("shots/0.png", "site/masks/0.png", "site/images/0.png"):
        write_image(tmp_path / name, picture(0, 8, 8))
    (tmp_path / "link").symlink_to("shots")
    before = (tmp_path / "shots" / "0.png").read_bytes()
    refused(request_of(model, tmp_path / "shots", tmp_path / "r.json", masks=tmp_path / masks), "overwrit")
    assert (tmp_path / "shots" / "0.png").read_bytes() == before


@pytest.mark.parametrize(
    ("targets", "smooth", "words"),
    [
        ({"video": "seen.mkv"}, 1, r"videos cannot be written as \.mkv"),
        ({"video": "seen.avi"}, 1, r"videos cannot be written as \.avi"),
        ({"video": "seen.ts"}, 1, r"videos cannot be written as \.ts"),
        ({"video": "seen.webm"}, 1, r"videos cannot be written as \.webm"),
        ({"video": "seen"}, 1, "videos cannot be written as seen"),
        ({"masks": "masks.mp4"}, 1, r"masks cannot be written as \.mp4"),
        ({"masks": "masks"}, 0, "smoothed over 0 frames"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_source_is_opened(model, tmp_path, targets, smooth, words):
    paths = {name: tmp_path / path for name, path in targets.items()}
    request = VideoRequest("absent.mp4", model, Targets(**paths), tmp_path / "r.json", smooth=smooth)
    refused(request, words)
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_does_not_overwrite_its_source(model, tmp_path):
    make_clip(tmp_path / "diff.mp4", 3)
    request = DiffRequest(model, model, str(tmp_path / "diff.mp4"), tmp_path, device="cpu", threads=1)
    for run in (run_diff, diff_dry_run):
        with pytest.raises(ConfigError, match=r"the video .* would overwrite .*diff\.mp4"):
            run(request)


def test_a_dry_comparison_refuses_models_without_a_common_class(model, tmp_path, monkeypatch):
    from rcil.model.metadata import class_table
    from rcil_serve.stream import options

    make_clip(tmp_path / "in.mp4", 3)
    opened = iter([["background", "ball"], ["background", "road"]])
    real = options.open_backend

    def renamed(*given):
        backend = real(*given)
        backend.metadata = backend.metadata.model_copy(update={"classes": class_table([next(opened)])})
        return backend

    monkeypatch.setattr(options, "open_backend", renamed)
    with pytest.raises(ConfigError, match="share no class but background"):
        diff_dry_run(DiffRequest(model, model, str(tmp_path / "in.mp4"), tmp_path / "out", device="cpu", threads=1))


@pytest.mark.parametrize(
    ("source", "output"), [("site/images", "site"), ("seen/overlays", "seen"), ("seen/masks", "seen"), (".", "seen")]
)
def test_images_keeps_sites_and_its_own_inputs(model, tmp_path, source, output):
    for name in ("site/images/0.png", "site/masks/0.png", "seen/overlays/0.jpg", "seen/masks/0.png"):
        write_image(tmp_path / name, np.full((16, 16, 3), 7, np.uint8))
    before = {path: path.read_bytes() for path in tmp_path.rglob("0.*")}
    app = typer.Typer()
    app.command()(images)
    done = CliRunner().invoke(app, [str(tmp_path / source), "-m", str(model), "-o", str(tmp_path / output)])
    assert isinstance(done.exception, ConfigError), done.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("0.*")} == before


def test_names_that_no_file_can_have_and_addresses_are_let_through(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"b\0.png\n")
    for source in (str(tmp_path / "list.txt"), "rtsp://cam.local/[1]*.mp4", "0"):
        check_no_overwrite(source, [], {"video": tmp_path / "a.mp4", "masks": tmp_path})
