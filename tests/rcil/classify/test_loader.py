import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rcil.classify.data import ImageFiles, load_data
from rcil.classify.loader import Draw, as_planes, augmented, draw_batches, in_order, read_batches
from rcil.classify.task import DataSection, TrainingSection
from rcil.core.images import write_image
from rcil.core.reading import DataError

SETTINGS = TrainingSection(batch=8, shift=2, flip=True)


@pytest.fixture
def files(folder):
    return load_data(DataSection(kind="folder", root=folder, size=16)).train.images


def batches(images, workers, seed=0, iterations=7):
    draws = draw_batches(len(images), iterations, SETTINGS, torch.Generator().manual_seed(seed))
    return list(read_batches(images, draws, workers=workers, shift=SETTINGS.shift))


def test_planes_are_normalised_rgb():
    image = torch.zeros((1, 16, 16, 3), dtype=torch.uint8)
    image[..., 0] = 255
    planes = as_planes(image)
    assert planes[0, :, 3, 4].tolist() == pytest.approx([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225])


def test_images_are_moved_and_mirrored():
    image = np.arange(6, dtype=np.uint8)[None, :, None].repeat(6, 0).repeat(3, 2)
    rows = [augmented(image, Draw(0, 1, left, mirrored), 1)[0, :, 0].tolist() for left, mirrored in [(0, 0), (2, 1)]]
    assert rows == [[0, 0, 1, 2, 3, 4], [5, 5, 4, 3, 2, 1]]
    assert np.array_equal(augmented(image.transpose(1, 0, 2), Draw(0, 2, 1, False), 1)[:, 0, 0], [1, 2, 3, 4, 5, 5])
    assert np.array_equal(augmented(image, Draw(0, 0, 0, False), 0), image)


def test_shifts_and_flips_are_all_drawn():
    drawn = [draw for batch in draw_batches(40, 40, SETTINGS, torch.Generator().manual_seed(0)) for draw in batch]
    assert {(d.top, d.left) for d in drawn} == {(y, x) for y in range(5) for x in range(5)}
    assert 0.4 < np.mean([d.mirrored for d in drawn]) < 0.6
    plain = draw_batches(4, 2, TrainingSection(batch=2, shift=0), torch.Generator())
    assert {d[1:] for batch in plain for d in batch} == {(0, 0, False)}


def test_all_images_are_used_once_before_any_repeats():
    drawn = [d.number for batch in draw_batches(20, 5, SETTINGS, torch.Generator().manual_seed(0)) for d in batch]
    assert len(drawn) == 40
    assert sorted(drawn[:20]) == sorted(drawn[20:]) == list(range(20))
    assert [len(batch) for batch in draw_batches(3, 2, SETTINGS, torch.Generator())] == [3, 3]


def test_batches_are_those_of_images_in_memory_drawn_batch_by_batch(files):
    """The arithmetic and the order of the draws of the first version, which had all images in one tensor."""
    everything = as_planes(torch.stack([torch.from_numpy(files[at]) for at in range(len(files))]))
    generator, waiting = torch.Generator().manual_seed(3), torch.empty(0, dtype=torch.int64)
    found = batches(files, 0, seed=3)
    for images, picked in found:
        if len(waiting) < 8:
            waiting = torch.cat((waiting, torch.randperm(36, generator=generator)))
        expected, waiting = waiting[:8], waiting[8:]
        wide = F.pad(everything[expected], (2, 2, 2, 2), mode="replicate")
        corners = torch.randint(5, (8, 2), generator=generator).tolist()
        moved = torch.stack([one[:, y : y + 16, x : x + 16] for one, (y, x) in zip(wide, corners, strict=True)])
        mirrored = torch.rand(8, generator=generator) < 0.5
        assert torch.equal(picked, expected)
        assert torch.equal(images, torch.where(mirrored.view(-1, 1, 1, 1), moved.flip(-1), moved))
    assert len(found) == 7


def test_batches_do_not_depend_on_the_workers_and_the_global_generator_is_left_alone(files):
    state = torch.random.get_rng_state()
    alone, one, two = (batches(files, workers) for workers in (0, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    for first, second, third in zip(alone, one, two, strict=True):
        assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(first, second, third, strict=True))
    assert not torch.equal(alone[0][0], batches(files, 0, seed=1)[0][0])


def test_in_order_reads_everything_once(files):
    found = list(read_batches(files, in_order(len(files), 10), workers=2))
    assert [len(images) for images, _ in found] == [10, 10, 10, 6]
    assert torch.cat([indices for _, indices in found]).tolist() == list(range(36))
    assert torch.equal(found[3][0][5], as_planes(torch.from_numpy(files[35])[None])[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_named_without_a_traceback(files, workers):
    files.paths[30].write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png is not an image") as caught:
        list(read_batches(files, in_order(len(files), 4), workers=workers))
    assert "Traceback" not in caught.value.message


def test_memory_holds_a_few_batches_and_never_the_dataset(tmp_path):
    """512 images of 96 x 96 are 14 MB; batches of 8 are 0.2 MB, and 0.9 MB as float32."""
    image = np.random.default_rng(0).integers(0, 255, (96, 96, 3)).astype(np.uint8)
    write_image(tmp_path / "a.png", image)
    files = ImageFiles((tmp_path / "a.png",) * 512, 96)
    settings = TrainingSection(batch=8, shift=4)
    total, batch = 512 * image.nbytes, 8 * image.nbytes
    tracemalloc.start()
    for images, _ in read_batches(files, draw_batches(512, 64, settings, torch.Generator()), workers=0, shift=4):
        assert images.nbytes == 4 * batch
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * batch < total / 6


def test_workers_are_a_few_batches_ahead_and_no_more(files):
    asked = []

    def draws():
        for batch in in_order(len(files), 1):
            asked.append(batch)
            yield batch

    reading = read_batches(files, draws(), workers=2)
    next(reading)
    assert len(asked) <= 2 * 2 + 1  # two batches per worker
