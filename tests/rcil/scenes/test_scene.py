import hashlib
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.scenes import CLASSES, DOMAINS, make_scene

SMALL = (96, 128)


def same(a, b):
    return np.array_equal(a.image, b.image) and np.array_equal(a.mask, b.mask) and a.domain == b.domain


def test_a_scene_has_the_size_and_types_it_promises():
    scene = make_scene(0, 3, size=(64, 112))
    assert scene.image.shape == (64, 112, 3) and scene.image.dtype == np.uint8
    assert scene.mask.shape == (64, 112) and scene.mask.dtype == np.uint8


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_scene_does_not_depend_on_what_was_made_before(domain):
    first = make_scene(4, 9, size=SMALL, domain=domain)
    for index in range(3):
        make_scene(8, index, size=SMALL)
    assert same(first, make_scene(4, 9, size=SMALL, domain=domain))


def test_seed_and_index_both_change_the_scene():
    scene = make_scene(1, 2, size=SMALL)
    for other in (make_scene(2, 1, size=SMALL), make_scene(1, 3, size=SMALL), make_scene(3, 2, size=SMALL)):
        assert not np.array_equal(scene.mask, other.mask)


def test_threads_do_not_change_a_scene():
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(1)
        one = [make_scene(0, i, domain=d) for i, d in enumerate(DOMAINS)]
        cv2.setNumThreads(4)
        four = [make_scene(0, i, domain=d) for i, d in enumerate(DOMAINS)]
    finally:
        cv2.setNumThreads(before)
    assert all(same(a, b) for a, b in zip(one, four, strict=True))


def test_another_process_makes_the_same_scene():
    code = (
        "import hashlib; from rcil.scenes import make_scene; s = make_scene(7, 11, size=(96, 128));"
        "import sys; sys.stdout.write(hashlib.sha256(s.image.tobytes() + s.mask.tobytes()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "99"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    scene = make_scene(7, 11, size=SMALL)
    assert run.stdout == hashlib.sha256(scene.image.tobytes() + scene.mask.tobytes()).hexdigest()


def test_the_mask_is_the_same_in_every_domain():
    scenes = [make_scene(2, 6, size=SMALL, domain=domain) for domain in DOMAINS]
    for scene in scenes[1:]:
        assert np.array_equal(scene.mask, scenes[0].mask)
        assert np.abs(scene.image.astype(int) - scenes[0].image).mean() > 5


def test_a_larger_picture_shows_the_same_place():
    agreement = []
    for index in range(12):
        small, large = make_scene(3, index, size=(120, 160)).mask, make_scene(3, index, size=(240, 320)).mask
        agreement.append(np.mean(small == large[1::2, 1::2]))
    assert min(agreement) > 0.88
    unrelated = [
        np.mean(make_scene(3, i, size=(120, 160)).mask == make_scene(3, i + 1, size=(120, 160)).mask) for i in range(6)
    ]
    assert np.mean(unrelated) < 0.75


def test_masks_hold_class_ids_only(masks):
    assert max(int(mask.max()) for mask in masks) == len(CLASSES) - 1


def gradient_at(image, border):
    smooth = cv2.GaussianBlur(image, (0, 0), 1).astype(np.float32)
    steps = [np.abs(cv2.Sobel(smooth, cv2.CV_32F, dx, 1 - dx)).sum(axis=2) for dx in (0, 1)]
    return float(np.hypot(*steps)[border].mean())


@pytest.mark.parametrize("domain", DOMAINS)
def test_image_and_mask_align(domain):
    """Colour changes where the mask does, and clearly less where a mask displaced by a few pixels does."""
    there, beside = [], []
    for index in range(12):
        scene = make_scene(6, index, domain=domain)
        things = np.where(scene.mask > 3, scene.mask, 0).astype(np.uint8)
        border = cv2.morphologyEx(things, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
        if border.sum() < 100:
            continue
        there.append(gradient_at(scene.image, border))
        beside += [gradient_at(scene.image, np.roll(border, shift, (0, 1))) for shift in ((6, 6), (-6, 6))]
    assert np.mean(there) > 1.4 * np.mean(beside)


def test_colour_alone_does_not_name_a_thing():
    """The nearest mean colour, with the means of the very same pixels, is wrong for most pixels of things."""
    colours, ids = [], []
    for index in range(60):
        scene = make_scene(9, index, size=SMALL, domain="sunny")
        things = scene.mask > 3
        colours.append(scene.image[things].astype(np.float32))
        ids.append(scene.mask[things])
    colours, ids = np.concatenate(colours), np.concatenate(ids)
    known = np.unique(ids)
    means = np.stack([colours[ids == k].mean(axis=0) for k in known])
    guess = known[np.linalg.norm(colours[:, None] - means, axis=2).argmin(axis=1)]
    recall = [np.mean(guess[ids == k] == k) for k in known]
    assert len(known) == len(CLASSES) - 4
    assert np.mean(recall) < 0.45


def test_domains_take_turns_when_none_is_asked_for():
    assert {make_scene(0, index, size=SMALL).domain for index in range(0, 25, 5)} == set(DOMAINS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"domain": "nigth"}, "Did you mean 'night'"),
        ({"size": (40, 320)}, "at least 48"),
        ({"seed": -1}, "must not be negative"),
    ],
)
def test_impossible_requests_are_refused_with_a_remedy(arguments, words):
    with pytest.raises(ConfigError, match=words):
        make_scene(**{"seed": 0, "index": 0, **arguments})
