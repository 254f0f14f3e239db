import numpy as np
import pytest

from rcil_serve.diff.tally import MAX_SECONDS, Tally, WorstSeconds
from rcil_serve.diff.transitions import FORGOTTEN, KINDS, SAME, SWAPPED
from rcil_serve.stream.frames import Frame

RANDOM = np.random.default_rng(1)


def frame_at(index, time):
    return Frame(index, index, time, np.zeros((6, 8, 3), np.uint8), 0.0)


def shares_of(**parts):
    shares = np.zeros(len(KINDS))
    for name, share in parts.items():
        shares[[kind.name for kind in KINDS].index(name)] = share
    shares[SAME] = 1 - shares.sum()
    return shares


def test_matrix_kinds_and_timeline_are_counts(yard):
    tally = Tally(yard.codes, lambda frame, codes: b"")
    old = RANDOM.integers(0, 4, (9, 6, 8)).astype(np.uint8)
    new = RANDOM.integers(0, 5, (9, 6, 8)).astype(np.uint8)
    for index in range(9):
        codes = yard.codes.of(old[index], new[index])
        shares = tally.add(frame_at(index, 0.4 * index), codes)
        np.testing.assert_allclose(shares, np.bincount(yard.codes.kinds(codes).ravel(), minlength=7) / 48)
    expected = np.zeros((6, 6), np.int64)
    np.add.at(expected, (yard.classes.old[old], yard.classes.new[new]), 1)
    np.testing.assert_array_equal(tally.matrix, expected)
    assert tally.frames == 9 and tally.by_kind.sum() == 9 * 48
    times, curves = tally.timeline.curves()
    assert times.tolist() == [0, 1, 2, 3]
    kinds = yard.codes.kinds(yard.codes.of(old, new)).reshape(9, -1)
    by_frame = np.array([np.bincount(row, minlength=7) / 48 for row in kinds])
    np.testing.assert_allclose(
        curves, [by_frame[:3].mean(0), by_frame[3:5].mean(0), by_frame[5:8].mean(0), by_frame[8]]
    )


def test_the_worst_seconds_are_those_of_a_full_sort():
    drawn, shares = [], RANDOM.random((300, len(KINDS))) / 10
    shares[:, FORGOTTEN] = RANDOM.integers(0, 6, 300) / 100  # many equals, which swapped pixels decide

    def draw(frame, codes):
        drawn.append(frame.index)
        return str(frame.index).encode()

    worst = WorstSeconds(draw)
    for index, share in enumerate(shares):
        worst.add(frame_at(index, index / 4), np.zeros((6, 8), np.uint8), share)
    means = shares.reshape(-1, 4, len(KINDS)).mean(1)
    order = sorted(range(75), key=lambda second: (means[second, FORGOTTEN], means[second, SWAPPED]), reverse=True)
    found = worst.ranked()
    assert [bad.second for bad in found] == order[:MAX_SECONDS]
    for bad in found:
        np.testing.assert_allclose(bad.shares, means[bad.second])
        inside = range(4 * bad.second, 4 * bad.second + 4)
        most = max(inside, key=lambda index: (shares[index, FORGOTTEN], shares[index, SWAPPED]))
        assert bad.frame == most and bad.picture == str(most).encode() and bad.frames == 4
        assert bad.time == most / 4
    assert len(drawn) < 60, "only what gets among the worst is drawn"


def test_seconds_without_harm_are_left_out_and_of_equals_the_earlier_comes_first():
    worst = WorstSeconds(lambda frame, codes: b"", limit=2)
    harmless = shares_of(learned=0.5, appeared=0.2)
    harm = shares_of(forgotten=0.1)
    for second, shares in enumerate([harmless, harm, harmless, harm, harm]):
        worst.add(frame_at(second, second + 0.5), np.zeros((6, 8), np.uint8), shares)
    assert [bad.second for bad in worst.ranked()] == [1, 3]


@pytest.mark.parametrize("kind", ["swapped", "lost", "taken"])
def test_other_harm_counts_where_nothing_is_forgotten(kind):
    worst = WorstSeconds(lambda frame, codes: b"")
    for second, share in enumerate([0.1, 0.3, 0.2]):
        worst.add(frame_at(second, second), np.zeros((6, 8), np.uint8), shares_of(**{kind: share}))
    assert [bad.second for bad in worst.ranked()] == [1, 2, 0]
