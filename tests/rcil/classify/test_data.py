import os
import sys

import numpy as np
import pytest

from rcil.classify.data import class_steps, load_data, stratified
from rcil.classify.task import DataSection, ProtocolSection
from rcil.core.errors import ConfigError, MissingDependencyError
from rcil.core.reading import DataError


def test_digits_are_split_once_and_by_class():
    data = load_data(DataSection(size=8))
    assert data.names == tuple("0123456789")
    assert len(data.train.labels) + len(data.test.labels) == 1797
    for label in range(10):
        train, test = len(data.train.of_class(label)), len(data.test.of_class(label))
        assert test / (train + test) == pytest.approx(0.3, abs=0.005)
    assert data.train.images.shape == (len(data.train.labels), 8, 8, 3)
    assert data.train.images.max() == 255
    assert data.digest() == load_data(DataSection(size=8)).digest()


def test_held_out_images_come_from_the_training_images():
    whole, chosen = load_data(DataSection(size=8)), load_data(DataSection(size=8, evaluate="held_out"))
    assert len(chosen.train.labels) + len(chosen.test.labels) == len(whole.train.labels)
    assert len(chosen.test.labels) == pytest.approx(0.2 * len(whole.train.labels), abs=6)
    known = {image.tobytes() for image in whole.train.images}
    assert all(image.tobytes() in known for image in chosen.test.images)


def test_stratified_parts_are_disjoint_and_seeded():
    labels = np.repeat([0, 1, 2], [10, 20, 5])
    large, small = stratified(labels, 0.2, 1)
    assert sorted([*large, *small]) == list(range(35))
    assert np.bincount(labels[small]).tolist() == [2, 4, 1]
    assert np.array_equal(small, stratified(labels, 0.2, 1)[1])
    assert not np.array_equal(small, stratified(labels, 0.2, 2)[1])


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match=r"rcil\[classify\]"):
        load_data(DataSection())


def test_folders_are_classes_in_alphabetical_order(folder):
    data = load_data(DataSection(kind="folder", root=folder, size=16))
    assert data.names == ("blue", "green", "grey", "red", "white", "yellow")
    assert len(data.train.images) == 36
    assert data.test.labels.tolist() == np.repeat(range(6), 3).tolist()
    reds = data.train.images[data.train.of_class(3)]
    assert [path.parent.name for path in reds.paths] == ["red"] * 6
    assert reds[0].shape == (16, 16, 3)
    assert np.mean([reds[at] for at in range(6)], axis=(0, 1, 2)) == pytest.approx([230, 30, 20], abs=6)


def test_the_digest_is_that_of_the_contents_and_labels(folder, tmp_path):
    section = DataSection(kind="folder", root=folder, size=16)
    whole = load_data(section).digest()
    assert whole == load_data(section).digest()
    assert load_data(section.model_copy(update={"evaluate": "held_out"})).digest() != whole
    red = folder / "train" / "red"
    before = (red / "0.png").read_bytes()
    (red / "0.png").write_bytes((red / "1.png").read_bytes())
    assert load_data(section).digest() != whole
    (red / "0.png").write_bytes(before)
    assert load_data(section).digest() == whole
    (red / "0.png").rename(folder / "train" / "white" / "00.png")
    assert load_data(section).digest() != whole


def test_broken_folders_are_named(folder, tmp_path):
    section = DataSection(kind="folder", root=folder)
    (folder / "train" / "black").mkdir()
    with pytest.raises(DataError, match="differ in the classes black"):
        load_data(section)
    (folder / "val" / "black").mkdir()
    with pytest.raises(DataError, match="black has no images"):
        load_data(section)
    with pytest.raises(DataError, match="no folder at"):
        load_data(DataSection(kind="folder", root=tmp_path / "none"))


def test_half_first_then_five_steps_in_the_order_of_the_seed():
    names = [str(number) for number in range(10)]
    steps = class_steps(names, ProtocolSection(), 0)
    assert [len(step) for step in steps] == [5, 1, 1, 1, 1, 1]
    assert sorted(name for step in steps for name in step) == names
    assert steps == class_steps(names, ProtocolSection(), 0)
    assert steps != class_steps(names, ProtocolSection(), 1)


@pytest.mark.parametrize(("first", "later", "sizes"), [(4, 3, [4, 2, 2, 2]), (10, 0, [10]), (2, 2, [2, 4, 4])])
def test_other_shares(first, later, sizes):
    steps = class_steps([str(n) for n in range(10)], ProtocolSection(first=first, later_steps=later), 3)
    assert [len(step) for step in steps] == sizes


@pytest.mark.parametrize(("first", "later"), [(4, 5), (10, 1), (9, 2), (12, 1), (5, 0)])
def test_shares_that_do_not_divide_are_refused(first, later):
    with pytest.raises(ConfigError, match=f"10 classes cannot be divided into {first} first"):
        class_steps([str(n) for n in range(10)], ProtocolSection(first=first, later_steps=later), 0)


def test_folders_without_a_class(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
    with pytest.raises(DataError, match="train has no class folders"):
        load_data(DataSection(kind="folder", root=tmp_path))
    for split in ("train", "val"):
        (tmp_path / split / os.fsdecode(b"\xff")).mkdir()
    with pytest.raises(DataError, match=r"\\xff is not UTF-8"):
        load_data(DataSection(kind="folder", root=tmp_path))
