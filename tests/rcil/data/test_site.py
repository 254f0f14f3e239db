import json
import os
import shutil

import numpy as np
import pytest
from sites import make_site, write_sample

from rcil.core.reading import DataError
from rcil.data.site import pair_files, read_classes, read_site


def test_splits_and_classes(tmp_path):
    data = read_site(make_site(tmp_path))
    assert data.names == ("background", "ball", "cone")
    assert [c.colour for c in data.classes] == [(0, 0, 0), (120, 15, 255), (230, 159, 0)]
    assert {split: len(samples) for split, samples in data.splits.items()} == {"train": 6, "val": 6}
    first = data.splits["train"][0]
    assert (first.name, first.image.name, first.mask.name) == ("train_0", "train_0.jpg", "train_0.png")


def test_subfolders_are_part_of_the_name(tmp_path):
    make_site(tmp_path)
    write_sample(tmp_path, "train/camera_a", "x", np.ones((8, 8)))
    assert "camera_a/x" in {s.name for s in read_site(tmp_path).splits["train"]}


def test_domains_are_read_where_they_are_recorded(tmp_path):
    make_site(tmp_path)
    assert {s.domain for s in read_site(tmp_path).splits["val"]} == {""}
    (tmp_path / "dataset.json").write_text(json.dumps({"image_domains": {"val/val_0": "night"}}))
    assert [s.domain for s in read_site(tmp_path).splits["val"]][:2] == ["night", ""]
    (tmp_path / "dataset.json").write_text("[]")
    with pytest.raises(DataError, match="image_domains"):
        read_site(tmp_path)


def test_damaged_domains(tmp_path):
    make_site(tmp_path)
    for text in ("{}", "[" * 5000, '{"image_domains": 3}'):
        (tmp_path / "dataset.json").write_text(text)
        with pytest.raises(DataError, match=r"dataset\.json has no table image_domains"):
            read_site(tmp_path)


class TestFlat:
    def test_a_split_is_made_and_recorded(self, tmp_path):
        data = read_site(make_site(tmp_path, splits=("",), images=60), seed=3)
        sizes = {split: len(samples) for split, samples in data.splits.items()}
        assert sum(sizes.values()) == 60
        assert 4 <= sizes["val"] <= 22
        record = json.loads((tmp_path / "splits.json").read_text())
        assert record["seed"] == 3
        assert record["val"] == [s.name for s in data.splits["val"]]

    def test_new_images_do_not_move_the_others(self, tmp_path):
        before = read_site(make_site(tmp_path, splits=("",), images=20))
        write_sample(tmp_path, "", "added", np.ones((8, 8)))
        after = read_site(tmp_path, seed=99)  # the recorded seed counts
        for split in ("train", "val"):
            old = {s.name for s in before.splits[split]}
            assert old <= {s.name for s in after.splits[split]}
        record = json.loads((tmp_path / "splits.json").read_text())
        assert "added" in record["train"] + record["val"]
        assert record["seed"] == 0

    def test_another_seed_gives_another_split(self, tmp_path):
        make_site(tmp_path, splits=("",), images=40)
        first = read_site(tmp_path, seed=0).splits["val"]
        (tmp_path / "splits.json").unlink()
        assert read_site(tmp_path, seed=1).splits["val"] != first

    @pytest.mark.parametrize(
        "text",
        ['{"train": 3', '{"train": [], "val": [], "seed": 1e999, "held_out": 0.2}', "[" * 5000, '{"train": [[]]}'],
    )
    def test_a_damaged_record(self, tmp_path, text):
        make_site(tmp_path, splits=("",))
        (tmp_path / "splits.json").write_text(text)
        with pytest.raises(DataError, match=r"splits\.json is damaged"):
            read_site(tmp_path)


class TestClasses:
    def test_yaml_with_colours(self, tmp_path):
        (tmp_path / "dataset.yaml").write_text("names: [background, ball]\ncolours: {ball: [1, 2, 3]}\n")
        classes = read_classes(tmp_path)
        assert [(c.name, c.colour) for c in classes] == [("background", (0, 0, 0)), ("ball", (1, 2, 3))]

    def test_yaml_with_ids(self, tmp_path):
        (tmp_path / "dataset.yaml").write_text("names: {1: ball, 0: background}\n")
        assert [c.name for c in read_classes(tmp_path)] == ["background", "ball"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "names: 3",
            "names: {0: a, 2: b}",
            "[1",
            "names: [a, b]\ncolours: {a: [1, 2]}",
            "names: [a, b]\ncolours: {a: [1, 2, 999]}",
            "names: !!python/object/apply:os.system ['true']",
            "names: [a, b]\ncolours: {a: [.inf, 0, 0]}",
            "names: [a, 2001-13-45]",
            "[" * 2000,
        ],
    )
    def test_bad_yaml(self, tmp_path, text):
        (tmp_path / "dataset.yaml").write_text(text)
        with pytest.raises(DataError, match=r"dataset\.yaml"):
            read_classes(tmp_path)

    @pytest.mark.parametrize("text", ["", "background\n", "background\nball\nball\n"])
    def test_bad_names(self, tmp_path, text):
        (tmp_path / "classes.txt").write_text(text)
        with pytest.raises(DataError, match=r"names (0|1|ball)"):
            read_classes(tmp_path)

    def test_no_names(self, tmp_path):
        with pytest.raises(DataError, match=r"classes\.txt"):
            read_classes(tmp_path)


class TestPairs:
    def test_missing_partners_doubles_and_several_splits(self, tmp_path):
        make_site(tmp_path)
        (tmp_path / "masks/train/train_0.png").unlink()
        (tmp_path / "images/train/train_1.jpg").unlink()
        write_sample(tmp_path, "train", "train_2", np.ones((8, 8)), suffix=".png")
        write_sample(tmp_path, "val", "train_3", np.ones((8, 8)))
        write_sample(tmp_path, "", "loose", np.ones((8, 8)))
        pairing = pair_files(tmp_path)
        found = {(path.name, message.split(":")[0]) for path, message in pairing.problems}
        assert found == {
            ("train_0.jpg", "this image has no mask"),
            ("train_1.png", "this mask has no image"),
            ("train_2.png", "train_2.jpg has the same name"),
            ("loose.jpg", "this image is outside the split folders"),
        }
        assert [message for _, message in pairing.doubtful] == ["the name train_3 is in several splits: train, val"]
        with pytest.raises(DataError, match="rcil data check"):
            read_site(tmp_path)

    def test_no_folders_and_no_images(self, tmp_path):
        (tmp_path / "classes.txt").write_text("background\nball\n")
        with pytest.raises(DataError, match="images"):
            read_site(tmp_path)
        for name in ("images", "masks"):
            (tmp_path / name).mkdir()
        with pytest.raises(DataError, match="holds no images"):
            read_site(tmp_path)


def test_names_that_cannot_be_written_down_are_problems(tmp_path):
    make_site(tmp_path)
    for folder, suffix in (("images", ".png"), ("masks", ".png")):
        some = next((tmp_path / folder / "train").iterdir())
        target = os.fsencode(some.parent) + b"/f\xfcr" + suffix.encode()
        shutil.copyfile(some, target)
    problems = pair_files(tmp_path).problems
    assert len(problems) == 2
    for path, message in problems:
        assert path.name == "f\\xfcr.png" and "not UTF-8" in message
        str(path).encode()
    with pytest.raises(DataError, match="not UTF-8"):
        read_site(tmp_path)
