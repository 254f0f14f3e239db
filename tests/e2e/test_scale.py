"""A model that was trained on images at half their size sees them so in every command, unless an option differs."""

import contextlib
import shutil

import pytest
from commands import call

import rcil
import rcil_export
import rcil_serve
from rcil.checkpoint.file import load, save
from rcil.core.images import read_rgb
from rcil.model.metadata import LineageEntry
from rcil.nn import Segmenter
from rcil_export.checks.artefact import CheckpointArtefact
from rcil_export.graph.onnx_file import read_onnx
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.runtime.onnx_backend import OnnxBackend
from rcil_serve.stream.sources import Selection, open_source

NOTICE = "scale 0.5 as in the model's training; change with --scale"


@pytest.fixture(scope="module")
def half(world, tmp_path_factory):
    """A checkpoint trained at scale 0.5, and its graph for open sizes; images of the site have 64x96 pixels."""
    folder = tmp_path_factory.mktemp("half")
    network, metadata = load(world / "model.safetensors")
    entry = LineageEntry(step=0, source="rcil train, yard", config={"data": {"root": "yard", "scale": 0.5}})
    fold = LineageEntry(step=0, source="fold")
    save(folder / "half.safetensors", network, metadata.model_copy(update={"lineage": (entry, fold)}))
    shutil.copytree(world / "site", folder / "site")
    shutil.copy(world / "clip.mp4", folder)
    shutil.copytree(world / "photos", folder / "photos")
    options = f"{folder / 'half.safetensors'} -o {folder / 'open.onnx'} --dynamic 16x16:32x48:256x256"
    assert call("rcil-export onnx", *options.split()).code == 0
    return folder


@pytest.fixture
def seen(monkeypatch):
    """Height and width of what networks were given, in torch and in ONNX Runtime."""
    sizes = []
    forward, run = Segmenter.forward, OnnxBackend.run

    def forward_seen(network, x, maps=None):
        sizes.append(tuple(x.shape[2:]))
        return forward(network, x, maps)

    def run_seen(backend, batch):
        sizes.append(batch.shape[1:3])
        return run(backend, batch)

    monkeypatch.setattr(Segmenter, "forward", forward_seen)
    monkeypatch.setattr(OnnxBackend, "run", run_seen)
    return sizes


@pytest.mark.parametrize(("option", "size"), [("", (32, 48)), ("--scale 1", (64, 96)), ("--scale 0.25", (16, 24))])
@pytest.mark.parametrize(
    "line",
    [
        "rcil eval {half}/half.safetensors --data {half}/site",
        "rcil prelabel --from {half}/half.safetensors --images {half}/site -o {out}/made",
        "rcil-serve images {half}/photos -m {half}/open.onnx -o {out}/seen",
    ],
    ids=["eval", "prelabel", "images"],
)
def test_images_are_seen_at_the_scale_of_the_training(half, tmp_path, seen, line, option, size):
    script, command, *words = f"{line} {option}".format(half=half, out=tmp_path).split()
    done = call(f"{script} {command}", *words)
    assert done.code == 0, done.err
    assert (NOTICE in done.out + done.err) == (option == "")
    assert set(seen) == {size}


@pytest.mark.parametrize(
    "line",
    [
        "video {half}/clip.mp4 -m {half}/open.onnx -o {out}/seen.mp4",
        "diff {half}/open.onnx {half}/open.onnx {half}/clip.mp4 -o {out}/changes",
        "watch {half}/clip.mp4 -m {half}/open.onnx --events {out}/events.jsonl --receipt {out}/receipt.json",
    ],
    ids=lambda line: line.split()[0],
)
@pytest.mark.parametrize(("option", "share"), [("", 0.5), ("--scale 1", 1.0)])
def test_frames_are_seen_at_the_scale_of_the_training(half, tmp_path, seen, line, option, share):
    command, *words = f"{line} {option}".format(half=half, out=tmp_path).split()
    done = call(f"rcil-serve {command}", *words)
    assert done.code == 0, done.err
    assert ("scale 0.5" in done.out + done.err) == (option == "")
    with contextlib.closing(open_source(str(half / "clip.mp4"), Selection())) as clip:
        height, width = clip.info.size
    assert set(seen) == {(round(height * share), round(width * share))}


def test_the_server_and_the_python_api_see_images_so_too(half, seen):
    image = read_rgb(next(half.glob("photos/*")))
    path = half / "open.onnx"
    for scale, size in ((None, (32, 48)), (1.0, (64, 96))):
        service = make_app(HttpOptions(path, threads=1, scale=scale)).state.service
        seen.clear()
        service.models.current.predictor.segment(image)
        service.reloader.reload()
        with rcil_serve.open_model(path, threads=1, scale=scale) as model:
            assert model.predict(image).mask.shape == (64, 96)
        rcil.load(half / "half.safetensors").predict(image, scale=scale)
        assert seen[0] == seen[-1] == seen[-2] == size
        assert rcil.evaluate(half / "half.safetensors", half / "site", scale=scale).images == 4
        assert seen[-1] == size
        service.workers.close()
        service.models.close()


def shape_of(path):
    return str(read_onnx(path).interface.shape)


def test_the_input_of_a_graph_has_the_size_that_the_training_saw(half, tmp_path):
    """Of the images that the user names; the size of frames is not known otherwise."""
    start = f"{half / 'half.safetensors'} -o {tmp_path / 'out'} --rounds 0"
    done = call("rcil-export export", *f"{start} --images {half / 'site'}".split())
    assert done.code == 0, done.err + done.out
    assert "input size 32x48: images of 64x96 at scale 0.5 as in the model's training" in done.out
    assert shape_of(tmp_path / "out" / "model.onnx") == "1 x 32 x 48"
    assert call("rcil-export verify", str(tmp_path / "out"), str(half / "half.safetensors")).code == 0
    for option, shape in ((["--scale", "0.75"], "1 x 48 x 72"), (["--size", "40x40"], "1 x 40 x 40")):
        made = tmp_path / "made.onnx"
        words = [str(half / "half.safetensors"), "-o", str(made), "--calibrate", str(half / "photos"), *option]
        done = call("rcil-export onnx", *words)
        assert done.code == 0 and shape_of(made) == shape and "training" not in done.out
    exported = rcil_export.export(half / "half.safetensors", tmp_path / "api", images=half / "photos", rounds=0)
    assert shape_of(exported.files["model.onnx"]) == "1 x 32 x 48"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--scale 0.5", "no folder of images"),
        ("--scale 0.5 --size 64x64 --calibrate {half}/photos", "--size and --scale exclude"),
        ("--scale 0.5 --dynamic 16x16:32x32:64x64 --calibrate {half}/photos", "--dynamic and --scale exclude"),
    ],
)
def test_a_scale_that_cannot_be_used_is_refused(half, tmp_path, options, problem):
    words = f"{half}/half.safetensors -o {tmp_path}/made.onnx {options.format(half=half)}".split()
    done = call("rcil-export onnx", *words)
    assert done.code == 2 and problem in done.err
    assert not list(tmp_path.iterdir())


def test_without_images_the_default_size_is_explained(half, tmp_path):
    notice = "input size 512x512: the model was trained at scale 0.5, so this suits images of 1024x1024"
    done = call("rcil-export onnx", str(half / "half.safetensors"), "-o", str(tmp_path / "made.onnx"))
    assert notice in done.out and shape_of(tmp_path / "made.onnx") == "1 x 512 x 512"
    from rcil_export.timing import bench

    notes = []
    interface = bench._interface_of([half / "half.safetensors"], notes)
    assert notes[0].startswith(notice) and str(interface.shape) == "1 x 512 x 512"


def test_checks_of_open_sizes_see_images_at_the_scale_of_the_training(half, monkeypatch):
    checkpoint, graph, seen = half / "half.safetensors", half / "open.onnx", []
    predict = CheckpointArtefact.predict

    def predict_seen(artefact, image):
        seen.append(image.shape[:2])
        return predict(artefact, image)

    monkeypatch.setattr(CheckpointArtefact, "predict", predict_seen)
    for scale, size in ((None, (32, 48)), (1.0, (64, 96))):
        seen.clear()
        assert rcil_export.check(checkpoint, graph, images=half / "site", scale=scale, max_images=2, bisect=False).ok
        assert seen[:2] == [size] * 2
    seen.clear()
    assert rcil_export.check(checkpoint, graph, bisect=False).ok
    assert seen[0] == (32, 48), "generated images have the usual size of the graph"
