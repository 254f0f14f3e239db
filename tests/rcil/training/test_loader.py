import os
import signal
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from networks import small_arch
from torch.utils.data import DataLoader

from rcil.core.images import read_rgb
from rcil.core.interrupts import Interrupted, interruptible
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.inference import as_input
from rcil.model.metadata import Metadata, class_table
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan
from rcil.training.augment import random_crop
from rcil.training.loader import Crops, CropSettings, Share, batches, epoch_order, repeat_factors


def make_crops(task_file, workers=0, step=0, batch=3):
    plan = make_plan(load_task(task_file))
    metadata = Metadata(architecture=small_arch(), classes=class_table([["background", "ball", "cone"]]))
    settings = CropSettings(batch=batch, crop=40, scale=(0.5, 2.0), workers=workers)
    return Crops(plan.steps[0].train, np.arange(256, dtype=np.uint8), metadata, settings, (0, step))


def test_order_shuffles_every_epoch_and_leaves_the_rest_out():
    first, second = (epoch_order(10, 3, (0, 0), epoch) for epoch in (0, 1))
    assert first != second
    assert [len(group) for group in first] == [3, 3, 3]
    assert len({i for group in first for i in group}) == 9
    assert first == epoch_order(10, 3, (0, 0), 0)


def test_a_set_smaller_than_a_batch_is_repeated():
    ((group),) = epoch_order(2, 5, (0, 0), 0)
    assert len(group) == 5
    assert set(group) == {0, 1}


def test_workers_and_the_starting_point_change_nothing(task_file):
    alone = list(batches(make_crops(task_file), epoch=1))
    helped = list(batches(make_crops(task_file, workers=2), epoch=1))
    resumed = list(batches(make_crops(task_file), epoch=1, first=1))
    for ((a, b),), ((c, d),) in zip(alone, helped, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)
    assert torch.equal(alone[1][0][0], resumed[0][0][0])
    other = list(batches(make_crops(task_file, step=1), epoch=1))
    assert not torch.equal(alone[0][0][0], other[0][0][0])


def test_a_signal_waits_until_the_workers_are_started(task_file, monkeypatch):
    """Python prints and ignores an exception that a signal raises while a process is forked."""
    start, ends = DataLoader.__iter__, []

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGTERM)
        ends.append(start(self))
        return ends[0]

    monkeypatch.setattr(DataLoader, "__iter__", interrupted)
    with pytest.raises(Interrupted), interruptible():
        next(batches(make_crops(task_file), 0))
    assert len(ends) == 1


def test_processes_and_pieces_share_out_the_same_batches(task_file):
    crops = make_crops(task_file, batch=4)
    whole = list(batches(crops, epoch=0))
    shares = [list(batches(crops, epoch=0, share=Share(rank, 2, 2))) for rank in (0, 1)]
    for ((images, labels),), *parts in zip(whole, *shares, strict=True):
        pieces = [piece for part in parts for piece in part]
        assert [len(piece[0]) for piece in pieces] == [1, 1, 1, 1]
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), images)
        assert torch.equal(torch.cat([piece[1] for piece in pieces]), labels)


def test_the_task_chooses_how_crops_are_made(task_file):
    """A crop larger than the images of 64 x 96: padded, or a part of the image in its size."""
    overrides = ["training.crop=200", "training.scale=[0.5, 1]"]
    padded = {}
    for name in ("resize_and_crop", "random_resized_crop"):
        settings = load_task(task_file, [*overrides, f"training.augmentation={name}"]).training
        crops = make_crops(task_file)
        crops.settings = CropSettings.of(settings, 1.0)
        padded[name] = [float((crops[0, index][1] == 255).float().mean()) for index in range(6)]
    assert min(padded["resize_and_crop"]) > 0.8 and max(padded["random_resized_crop"]) == 0


def test_loading_leaves_torchs_generator_alone(task_file):
    state = torch.get_rng_state()
    list(batches(make_crops(task_file), epoch=0))
    assert torch.equal(state, torch.get_rng_state())


def test_crops_keep_image_and_mask_together():
    rng = np.random.default_rng(0)
    mask = np.zeros((60, 80), np.uint8)
    mask[20:40, 30:50] = 1
    image = np.repeat(mask[..., None] * 200, 3, axis=2)
    seen = set()
    for _ in range(40):
        a, b = random_crop(image, mask, 48, (0.5, 2.0), rng)
        assert a.shape == (48, 48, 3)
        assert b.shape == (48, 48)
        inside, outside = a[..., 0][b == 1], a[..., 0][(b == 0)]
        if inside.size > 50:
            assert inside.mean() > 150
        assert outside.mean() < 40
        assert (a[b == 255] == 0).all()
        seen.add(int((b == 1).sum()))
    assert len(seen) > 20, "scale and place vary"


def test_flip_happens_half_of_the_time():
    mask = np.zeros((32, 32), np.uint8)
    mask[:, :4] = 1
    image = np.repeat(mask[..., None], 3, axis=2)
    flips = sum(random_crop(image, mask, 32, (1.0, 1.0), np.random.default_rng(i))[1][0, -1] == 1 for i in range(200))
    assert 70 < flips < 130


def test_an_epoch_can_have_another_size(task_file):
    first, second = (epoch_order(100, 3, (0, 0), epoch, size=10) for epoch in (0, 1))
    assert [len(group) for group in first] == [3, 3, 3]
    assert {i for group in first for i in group} != {i for group in second for i in group}
    again = [index for group in epoch_order(5, 2, (0, 0), 0, size=12) for index in group]
    assert len(set(again)) == 12
    assert sorted(again[:5]) == [0, 1, 2, 3, 4] and sorted(again[5:10]) == [5, 6, 7, 8, 9]
    crops = make_crops(task_file)
    short = Crops(crops.samples, crops.tables[0], crops.metadata, replace(crops.settings, epoch_images=3), crops.seed)
    assert len(list(batches(short, epoch=0))) == 1 < len(list(batches(crops, epoch=0)))
    image, other = crops[0, 0][0], crops[0, len(crops)][0]
    assert image.shape == other.shape and not torch.equal(image, other)


def test_remembered_images_have_labels_of_their_own(task_file):
    crops = make_crops(task_file)
    other = np.full(256, 7, np.uint8)
    both = Crops(
        crops.samples[:1], crops.tables[0], crops.metadata, crops.settings, (0, 0), [(crops.samples[1], other)]
    )
    assert len(both) == 2
    assert torch.equal(both[0, 0][1], crops[0, 0][1])
    assert set(both[0, 1][1].unique().tolist()) <= {7, 255}
    assert torch.equal(both[0, 1][0], crops[0, 1][0])


def test_whole_images_are_as_evaluation_sees_them(task_file):
    crops = make_crops(task_file)
    image, labels = crops.whole(0, 1.0)
    sample = crops.samples[0]
    assert torch.equal(image[0], as_input(crops.metadata, read_rgb(sample.image)))
    assert np.array_equal(labels[0].numpy(), read_mask(sample.mask))
    half, small = crops.whole(0, 0.5)
    assert half.shape[2:] == small.shape[1:] == tuple(side // 2 for side in labels.shape[1:])


def test_the_memory_may_have_a_share_of_every_epoch(task_file):
    crops = make_crops(task_file)
    settings = replace(crops.settings, epoch_images=12, memory_share=0.25)
    both = Crops(
        crops.samples[:4], crops.tables[0], crops.metadata, settings, (0, 0), [(crops.samples[4], crops.tables[0])]
    )
    epochs = [[index for group in both.order(epoch) for index in group] for epoch in (0, 1)]
    for order in epochs:
        assert len(order) == len(set(order)) == 12
        assert sum(index % 5 == 4 for index in order) == 3
    assert epochs[0] != epochs[1]
    alone = Crops(crops.samples[:4], crops.tables[0], crops.metadata, settings, (0, 0))
    assert alone.order(0) == epoch_order(4, 3, (0, 0), 0, 12)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_mask_of_another_size_is_refused_as_itself(task_file, workers):
    """With workers too: torch would make a traceback of the message and lose the remedy."""
    crops = make_crops(task_file, workers, batch=1)
    sample = crops.samples[1]
    turned = np.ascontiguousarray(read_mask(sample.mask).T)
    cv2.imwrite(str(sample.mask), turned)
    with pytest.raises(DataError) as caught:
        list(batches(crops, epoch=0))
    assert caught.value.message == f"{sample.mask} has 64x96 pixels, its image has 96x64"
    assert "rcil data check" in caught.value.hint
    with pytest.raises(DataError, match="has 64x96 pixels, its image has 96x64"):
        crops.whole(1, 1.0)


@pytest.mark.parametrize("pinned", [False, True])
def test_memory_is_pinned_where_it_is_asked_for(task_file, monkeypatch, pinned):
    asked = []

    def loader(*args, **kwargs):
        asked.append(kwargs["pin_memory"])
        return DataLoader(*args, **{**kwargs, "pin_memory": False})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # a GPU that is not used decides nothing
    monkeypatch.setattr("rcil.training.loader.DataLoader", loader)
    assert list(batches(make_crops(task_file), epoch=0, pinned=pinned))
    assert asked == [pinned]


def test_images_of_rare_classes_are_drawn_more_often():
    """Of ten images, eight show the first class, four the second and one the third; the last image shows nothing."""
    present = np.zeros((10, 4), bool)
    present[:8, 0] = present[4:8, 1] = present[8, 2] = True
    assert repeat_factors(present, 1.0).tolist() == [1] * 8 + [4, 1], "the median share is 0.4"
    assert repeat_factors(present, 0.5).tolist() == [1] * 8 + [2, 1]
    assert repeat_factors(present, 0.0).tolist() == [1] * 10
    assert repeat_factors(np.zeros((3, 2), bool), 0.5).tolist() == [1] * 3

    repeats = np.array([1.0, 1.0, 1.0, 2.5])
    epochs = [np.concatenate(epoch_order(4, 1, (0, 0), epoch, 11, repeats)) for epoch in range(300)]
    counts = np.bincount(np.concatenate(epochs) % 4) / 300
    np.testing.assert_allclose(counts, [2, 2, 2, 5], rtol=0.05)
    assert all(len(set(epoch)) == 11 for epoch in epochs), "every repetition has its own augmentation"


def test_without_oversampling_the_order_is_unchanged():
    rng = np.random.default_rng([3, 1, 0, 2])
    expected = [int(i) + 5 * again for again in range(3) for i in rng.permutation(5)]
    assert [index for (index,) in epoch_order(5, 1, (3, 1), 2, size=15)] == expected


def test_oversampling_counts_the_labels_of_the_step(task_file):
    """Old classes, which may be labelled too, do not make an image rare; images of the memory count once."""
    crops = make_crops(task_file)
    labels = np.zeros((5, 255), np.int64)
    labels[:4, 2], labels[4, 1], labels[0, 3], labels[1:4, 4] = 9, 9, 9, 9
    memory = [(crops.samples[5], crops.tables[0])]
    found = []
    for first in (1, 2):
        settings = replace(crops.settings, oversample=1.0, focus_from=first)
        both = Crops(crops.samples[:5], crops.tables[0], crops.metadata, settings, (0, 0), memory)
        both.count_pixels = lambda classes: labels[:, :classes]
        found.append(both._repeats.tolist())
    np.testing.assert_allclose(found, [[2, 1, 1, 1, 2, 1], [3, 1, 1, 1, 1, 1]])
    assert make_crops(task_file)._repeats is None
