import json
import subprocess
import sys

import cv2
import numpy as np
import pytest

from rcil.core.errors import ConfigError, RcilError
from rcil.core.masks import read_mask, write_mask
from rcil.core.reading import DataError
from rcil.scenes import CLASSES, DOMAINS, clip, make_clip, make_scene, make_site, site

SMALL = {"images": 10, "size": (64, 96), "frames": 4}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites") / "yard"
    make_site(folder, seed=3, **SMALL)
    return folder


def content(folder):
    """Bytes of every file but the clip, whose container may carry a date."""
    paths = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".mp4"]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}


def test_layout(root):
    assert {p.name for p in root.iterdir()} == {
        "images",
        "masks",
        "classes.txt",
        "dataset.json",
        "clip.mp4",
        "clip_masks",
    }
    names = {s: sorted(p.stem for p in (root / "images" / s).glob("*.jpg")) for s in ("train", "val", "test")}
    assert names["val"] == ["000002", "000007"] and names["test"] == ["000004", "000009"]
    assert sum(map(len, names.values())) == 10
    for split, stems in names.items():
        assert sorted(p.name for p in (root / "masks" / split).iterdir()) == [f"{stem}.png" for stem in stems]
    assert (root / "classes.txt").read_text().splitlines() == list(CLASSES)


def test_description(root):
    described = json.loads((root / "dataset.json").read_text())
    assert described["seed"] == 3 and described["version"] == site.VERSION
    assert described["options"]["size"] == [64, 96]
    assert len(described["image_domains"]) == 10
    assert described["image_domains"]["test/000009"] == make_scene(3, 9, size=(64, 96)).domain


def test_a_site_where_only_one_class_was_labelled(root, tmp_path):
    made = make_site(tmp_path / "cars", seed=3, only="vehicle", **SMALL)
    car, left = CLASSES.index("vehicle"), set()
    for path in (root / "masks").rglob("*.png"):
        name, whole = path.relative_to(root / "masks"), read_mask(path)
        other, is_train = tmp_path / "cars" / "masks" / name, name.parts[0] == "train"
        if is_train and not (whole == car).any():
            assert not other.exists()
            continue
        left.add(name.with_suffix("").as_posix())
        assert np.array_equal(read_mask(other), whole * (whole == car) if is_train else whole)
    images = {p.relative_to(tmp_path / "cars" / "images") for p in (tmp_path / "cars" / "images").rglob("*.jpg")}
    described = json.loads((tmp_path / "cars" / "dataset.json").read_text())
    assert {p.with_suffix("").as_posix() for p in images} == set(described["image_domains"]) == left
    assert 0 < made.splits["train"] < 6 and sum(made.splits.values()) == len(left)
    assert described["options"]["only"] == "vehicle"
    with pytest.raises(ConfigError, match="unknown class 'con'") as caught:
        make_site(tmp_path / "no", seed=3, only="con", **SMALL)
    assert "cone" in caught.value.hint
    with pytest.raises(ConfigError, match="no training image shows cone"):
        make_site(tmp_path / "no", seed=3, only="cone", **SMALL)
    assert not (tmp_path / "no").exists()


def test_pixels_are_those_of_the_scenes(root):
    scene = make_scene(3, 7, size=(64, 96))
    assert np.array_equal(read_mask(root / "masks/val/000007.png"), scene.mask)
    image = cv2.imread(str(root / "images/val/000007.jpg"))[..., ::-1]
    assert np.abs(image.astype(int) - scene.image).mean() < 8
    assert np.abs(image.astype(int) - scene.image[..., ::-1]).mean() > np.abs(image.astype(int) - scene.image).mean()


def test_clip_reads_back_with_its_masks(root):
    reader = cv2.VideoCapture(str(root / "clip.mp4"))
    assert reader.get(cv2.CAP_PROP_FPS) == pytest.approx(12)
    for number, scene in enumerate(make_clip(3, 4, (64, 96), domain="sunny")):
        found, frame = reader.read()
        assert found
        assert np.abs(frame[..., ::-1].astype(int) - scene.image).mean() < 15
        mask = cv2.imread(str(root / f"clip_masks/{number:06d}.png"), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(mask, scene.mask)
    assert not reader.read()[0]
    assert len(list((root / "clip_masks").iterdir())) == 4


def test_the_same_seed_writes_the_same_files(root, tmp_path):
    make_site(tmp_path / "again", seed=3, **SMALL)
    assert content(tmp_path / "again") == content(root)


def test_a_larger_site_extends_a_smaller_one(root, tmp_path):
    make_site(tmp_path / "more", seed=3, **{**SMALL, "images": 13, "frames": 0})
    more = content(tmp_path / "more")
    assert all(more[name] == data for name, data in content(root).items() if name.startswith(("images", "masks")))
    assert not (tmp_path / "more/clip.mp4").exists()


def test_summary_and_png_and_domains(tmp_path):
    summary = make_site(
        tmp_path / "a", images=11, size=(64, 96), domains=("night", "rain"), image_format="png", frames=0
    )
    assert summary.splits == {"train": 7, "val": 2, "test": 2}
    assert summary.domains == {"night": 6, "rain": 5}
    assert summary.classes["background"] == 11 and set(summary.classes) == set(CLASSES)
    image = cv2.imread(str(tmp_path / "a/images/train/000010.png"))[..., ::-1]
    assert np.array_equal(image, make_scene(0, 10, size=(64, 96), domain="night").image)


def test_every_split_sees_every_domain():
    listing = [(site._split_of(i), site.domain_of(i)) for i in range(25)]
    assert set(listing) == {(split, domain) for split in ("train", "val", "test") for domain in DOMAINS}


def test_an_empty_folder_is_accepted(tmp_path):
    target = tmp_path / "empty"
    target.mkdir()
    make_site(target, images=5, size=(64, 96), frames=0)
    assert (target / "classes.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is in use"):
        make_site(tmp_path, images=5)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_behind_after_an_error(tmp_path, monkeypatch, error):
    calls = []

    def fail_later(path, mask, palette=None):
        calls.append(path)
        if len(calls) == 4:
            raise error
        write_mask(path, mask)

    monkeypatch.setattr(site, "write_mask", fail_later)
    with pytest.raises(RcilError if isinstance(error, OSError) else KeyboardInterrupt):
        make_site(tmp_path / "yard", images=5, size=(64, 96), frames=0)
    assert len(calls) == 4 and calls[0].exists() is False
    assert list(tmp_path.iterdir()) == []


def test_a_missing_codec_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    class Closed:
        fourcc = staticmethod(cv2.VideoWriter.fourcc)

        def __init__(self, *arguments):
            pass

        def isOpened(self):
            return False

    monkeypatch.setattr(clip.cv2, "VideoWriter", Closed)
    with pytest.raises(RcilError, match="opencv-python-headless"):
        make_site(tmp_path / "yard", images=5, size=(64, 96), frames=2)
    assert list(tmp_path.iterdir()) == []


def test_a_clip_that_cannot_be_read_back_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(clip, "_readable_frames", lambda video, size: 1)
    with pytest.raises(RcilError, match="cannot encode"):
        make_site(tmp_path / "yard", images=5, size=(64, 96), frames=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"images": 4}, "at least 5"),
        ({"size": (65, 96)}, "even"),
        ({"size": (48, 33_000)}, "at most 32000 pixels per side"),
        ({"size": (20_000, 20_000)}, "100 megapixels"),
        ({"domains": ()}, "no domain"),
        ({"domains": ("suny",)}, "Did you mean 'sunny'"),
        ({"seed": -2}, "negative"),
        ({"frames": -1}, "Use 0 for no clip"),
        ({"image_format": "gif"}, "jpg or png"),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_written(tmp_path, options, words):
    with pytest.raises(ConfigError, match=words):
        make_site(tmp_path / "yard", **{**SMALL, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_in_the_middle_of_a_mask_is_noticed(tmp_path):
    """OpenCV calls a PNG written that was cut off; one byte less than the largest file must be an error."""
    code = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from rcil.scenes import make_site\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "if len(sys.argv) > 2: resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "make_site(Path(sys.argv[1]), images=5, size=(64, 96), frames=0, image_format='png')\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "whole"], check=True)
    smallest = min(p.stat().st_size for p in (tmp_path / "whole" / "images").rglob("*.png"))
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "cut", str(smallest - 1)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1 and "RcilError" in found.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]
