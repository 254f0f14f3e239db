import numpy as np

from rcil_serve.watch.measures.window import BINS, Window


def test_only_the_last_seconds_count():
    window = Window(60.0, 2)
    for second in range(200):
        window.add(second + 0.5, np.array([1.0, second]))
        low = max(0, second - 59)
        assert window.total().tolist() == [second - low + 1, sum(range(low, second + 1))]
        assert window.is_full == (second >= 59)


def test_numbers_of_one_bin_add_up_and_gaps_empty_the_window():
    window = Window(6.0, 1)
    for time in (0.0, 0.01, 0.05, 5.95):
        window.add(time, np.ones(1))
    assert window.total() == [4]
    window.add(6.05, np.ones(1))
    assert window.total() == [2], "what came within the first bin is gone"
    window.add(1000.0, np.ones(1))
    assert window.total() == [1]


def test_an_empty_window_sums_to_nothing_and_memory_does_not_grow():
    window = Window(1.0, 3)
    assert window.total().tolist() == [0, 0, 0] and not window.is_full
    for index in range(1000):
        window.add(index / 7, np.ones(3))
    assert window._sums.shape == (BINS, 3)
