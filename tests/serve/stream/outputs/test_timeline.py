import numpy as np

from rcil.model.metadata import class_table
from rcil_serve.stream.frames import Counts
from rcil_serve.stream.outputs import timeline as module
from rcil_serve.stream.outputs.timeline import Timeline, draw_timeline


def test_bins_hold_means():
    found = Timeline(2, seconds=1.0)
    for time, share in ((0.1, 0.2), (0.9, 0.4), (2.5, 1.0)):
        found.add(time, np.array([1 - share, share]))
    times, shares = found.curves()
    assert times.tolist() == [0, 2]
    np.testing.assert_allclose(shares, [[0.7, 0.3], [0, 1]])


def test_memory_does_not_grow_and_means_stay(monkeypatch):
    monkeypatch.setattr(module, "MAX_BINS", 16)
    found, values = Timeline(1, seconds=0.5), np.random.default_rng(0).random(1000)
    for index, value in enumerate(values):
        found.add(index * 0.5, np.array([value]))
        found.mark(index, "frames dropped")
    times, shares = found.curves()
    assert len(times) <= 16 and 8 <= len(found.marks) <= 16
    bins = int(found.seconds / 0.5)
    np.testing.assert_allclose(shares[:3, 0], values[: 3 * bins].reshape(3, bins).mean(1))


def test_a_plot_is_written(tmp_path):
    found = Timeline(3)
    for index in range(100):
        found.add(index / 25, np.array([0.5, 0.3, 0.2]))
    found.mark(1.0, "frames dropped")
    found.mark(2.0, "frames dropped")
    draw_timeline(tmp_path / "t.png", found, class_table([["background", "a", "b"]]), "clip")
    assert (tmp_path / "t.png").stat().st_size > 5000


def test_drops_leave_room_for_what_matters(monkeypatch):
    monkeypatch.setattr(module, "MAX_BINS", 16)
    found, counts = Timeline(1, seconds=0.5), Counts()
    for index in range(1000):
        found.add(index * 0.5, np.array([0.5]))
        counts.dropped += 1
        found.mark_drops(index * 0.5, counts)
    found.mark(499.0, "alarm")
    found.mark(499.5, "promoted")
    counts.gaps.append((100.0, 50.0))
    found.mark_gaps(counts)
    drops = [int(time / found.seconds) for time, text in found.marks if text == "frames dropped"]
    assert len(drops) == len(set(drops)) <= 16 and max(drops) >= 7, "one a bin, to the end"
    others = [mark for mark in found.marks if mark[1] != "frames dropped"]
    assert others == [(499.0, "alarm"), (499.5, "promoted"), (100.0, "gap"), (150.0, "gap")]
