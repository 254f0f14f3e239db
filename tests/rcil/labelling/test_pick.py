import itertools
import json

import cv2
import numpy as np
import pytest
import torch
from clips import make_clip, picture
from networks import small_arch

from rcil.checkpoint.file import save
from rcil.core.errors import ConfigError
from rcil.core.files import sha256_of
from rcil.core.images import read_rgb, write_image
from rcil.core.reading import DataError
from rcil.inference import Model, load
from rcil.labelling.frames import Video, open_source
from rcil.labelling.pick import CELL, SHEET, dry_run, pick
from rcil.labelling.prelabel import find_images
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build


def write_model(path, names, seed, *, every_class=False):
    torch.manual_seed(seed)
    network = build(small_arch(), [names]).eval()
    metadata = Metadata(architecture=network.arch, classes=class_table([names]))
    rows = torch.nn.init.normal_(network.classifier.groups[0].weight, std=3)
    if every_class:
        logits = Model(network, metadata).logits([picture(index, 40, 56) for index in range(6)])
        network.classifier.set_rows(rows.detach(), -logits.mean((0, 2, 3)))
    save(path, network, metadata)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models with other weights, whose common classes are in another order."""
    folder = tmp_path_factory.mktemp("models")
    return (
        write_model(folder / "a.safetensors", ["background", "a", "b"], 8),
        write_model(folder / "b.safetensors", ["b", "c", "a"], 10, every_class=True),
    )


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six similar pictures, exact and near copies of one of them, and a strange one."""
    folder = tmp_path_factory.mktemp("photos")
    for index in range(6):
        write_image(folder / f"{index}.png", picture(index, 40, 56))
    write_image(folder / "copy.png", picture(3, 40, 56))
    write_image(folder / "near.png", np.clip(picture(3, 40, 56).astype(int) + 2, 0, 255).astype(np.uint8))
    noise = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    write_image(folder / "strange.png", cv2.resize(noise, (56, 40), interpolation=cv2.INTER_NEAREST))
    return folder


def stems(document):
    return [entry["image"].removeprefix("images/").split(".")[0] for entry in document["picked"]]


def test_the_strange_picture_is_first_and_copies_are_left_out(models, photos, tmp_path):
    document = pick(photos, models[0], tmp_path / "out", by="diverse", count=9)
    assert stems(document)[0] == "strange"
    assert len({"3", "copy", "near"} & set(stems(document))) == 1
    assert document["near_duplicates"] == document["frames"] - len(document["picked"]) >= 2
    distances = [entry["distance"] for entry in document["picked"][1:]]
    assert distances == sorted(distances, reverse=True) and document["picked"][0]["distance"] is None


def test_uncertainty_is_the_mean_entropy(models, photos, tmp_path):
    document = pick(photos, models[0], tmp_path / "out", by="uncertain", count=4)
    scores = [entry["uncertainty"] for entry in document["picked"]]
    assert scores == sorted(scores, reverse=True) and len(scores) == 4
    for entry in document["picked"]:
        odds = load(models[0]).logits([read_rgb(tmp_path / "out" / entry["image"])])[0].double().softmax(0)
        expected = float(-(odds * odds.log()).sum(0).mean() / np.log(3))
        assert entry["uncertainty"] == pytest.approx(expected, rel=1e-4)
        assert entry["confidence"] == pytest.approx(float(odds.max(0).values.mean()), rel=1e-4)


def test_disagreement_counts_classes_that_both_models_know(models, photos, tmp_path):
    document = pick(photos, models[0], tmp_path / "out", by="disagree", against=models[1], count=4)
    scores = [entry["disagreement"] for entry in document["picked"]]
    assert scores == sorted(scores, reverse=True)
    names = [np.array([c.name for c in load(path).classes]) for path in models]
    for entry in document["picked"]:
        image = read_rgb(tmp_path / "out" / entry["image"])
        first, second = (known[load(path).segment(image)] for known, path in zip(names, models, strict=True))
        counted = (first != second) & (first != "background") & (second != "c")
        assert entry["disagreement"] == pytest.approx(counted.mean())
    assert len(set(scores)) > 1, "otherwise the test shows nothing"


def test_the_folder_is_ready_for_prelabel(models, photos, tmp_path):
    seen = []
    document = pick(
        photos, models[0], tmp_path / "out", count=3, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (9, 9) and document["by"] == "mixed"
    found = find_images(tmp_path / "out")
    assert sorted(found) == sorted(stems(document)) and len(found) == 3
    assert all(sha256_of(path) == sha256_of(photos / path.name) for path in found.values())
    assert document == json.loads((tmp_path / "out" / "pick.json").read_text())
    assert read_rgb(tmp_path / "out" / SHEET).shape == (CELL[0] + 8, 3 * (CELL[1] + 8), 3)
    assert all("uncertainty" in e["reason"] and e["file"].startswith(str(photos)) for e in document["picked"])


def test_frames_of_a_clip(models, tmp_path):
    make_clip(tmp_path / "drive.mp4", 12)
    document = pick(tmp_path / "drive.mp4", models[0], tmp_path / "out", count=4, every=3, by="diverse")
    assert document["frames"] == 4 and document["every"] == 3
    frames = {frame.number: frame for frame in Video(tmp_path / "drive.mp4").frames()}
    for entry in document["picked"]:
        frame = frames[entry["frame"]]
        assert entry["frame"] % 3 == 0 and entry["seconds"] == pytest.approx(frame.seconds)
        assert entry["image"] == f"images/drive_{entry['frame']:06d}.jpg"
        written = read_rgb(tmp_path / "out" / entry["image"]).astype(int)
        assert abs(written - frame.image).mean() < 8


def test_frames_of_a_video_in_order(tmp_path):
    make_clip(tmp_path / "drive.mp4", 6)
    frames = list(Video(tmp_path / "drive.mp4").frames())
    assert [frame.number for frame in frames] == [0, 1, 2, 3, 4, 5]
    for frame in frames:
        assert abs(frame.image.astype(int) - picture(frame.number, 48, 64)).mean() < 12, "RGB, in order"
    assert [f.number for f in Video(tmp_path / "drive.mp4").frames(only={4, 1})] == [1, 4]
    assert all(b.seconds > a.seconds for a, b in itertools.pairwise(frames))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"by": "disagree"}, ConfigError, "compares two models"),
        ({"by": "divers"}, ConfigError, "Did you mean 'diverse'"),
        ({"source": "missing.mp4"}, DataError, "no file or folder"),
        ({"source": "text.mp4"}, DataError, "cannot be opened as a video"),
        ({"source": "list.m3u8"}, DataError, "playlist"),
        ({"source": "photo.png"}, ConfigError, "single image"),
        ({"source": "empty"}, DataError, "holds no images"),
    ],
)
def test_what_cannot_be_done_writes_nothing(models, tmp_path, arguments, error, message):
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "list.m3u8").write_text("#EXTM3U\nother.ts\n")
    (tmp_path / "photo.png").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    source = tmp_path / arguments.pop("source", "empty")
    for run in (pick, dry_run):
        options = {"count": 5, "by": "mixed", "against": None, "every": None, **arguments}
        with pytest.raises(error) as raised:
            run(source, models[0], tmp_path / "out", **options)
        assert message in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_names_what_is_read_and_written(models, photos, tmp_path):
    plan = dry_run(photos, models[0], tmp_path / "out", count=5, by="mixed", against=models[1], every=2)
    assert plan.reads[str(photos)] == "5 frames to look at, 1 in 2"
    assert str(models[1]) in plan.reads and plan.writes[str(tmp_path / "out")].startswith("up to 5 images")
    assert not (tmp_path / "out").exists()


def test_a_folder_is_read_in_the_order_of_names(photos):
    source = open_source(photos)
    assert [frame.name for frame in source.frames(every=4)] == ["0", "4", "strange"]
