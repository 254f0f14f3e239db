import numpy as np

from rcil_serve.watch.measures.motion import BLUR, REACH, Stillness


def test_the_surroundings_of_what_moves_count_as_moved():
    before = np.full((60, 80, 3), 90, np.uint8)
    after = before.copy()
    after[20:30, 40:50] = 200
    stillness = Stillness(8)
    assert stillness.since_last(before) is None
    still = stillness.since_last(after)
    reach = BLUR // 2 + REACH // 2
    wanted = np.full((60, 80), 255, np.uint8)
    wanted[20 - reach : 30 + reach, 40 - reach : 50 + reach] = 0
    corners = np.zeros((60, 80), bool)
    for top in (20 - reach, 30 + reach - 1):
        for left in (40 - reach, 50 + reach - 1):
            corners[top, left] = True  # there the blur leaves too little
    np.testing.assert_array_equal(still[~corners], wanted[~corners])
    assert (stillness.since_last(after) == 255).all()


def test_noise_is_no_motion_and_a_new_size_starts_anew():
    rng = np.random.default_rng(0)
    stillness = Stillness(8)
    for index in range(5):
        noisy = np.clip(120 + rng.normal(0, 5, (60, 80, 3)), 0, 255).astype(np.uint8)
        still = stillness.since_last(noisy)
        assert index == 0 or (still == 255).mean() > 0.99
    assert stillness.since_last(noisy[:50]) is None
