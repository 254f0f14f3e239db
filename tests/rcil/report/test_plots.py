import subprocess
import sys

import cv2
import numpy as np
import pytest
from matplotlib import colormaps

from rcil.report import plots
from rcil.report.plots import (
    COLOURS,
    DPI,
    Curve,
    Estimate,
    Panel,
    class_bars,
    confusion_plot,
    interval_plot,
    step_curves,
    training_curves,
)

MATRIX = np.array([[8, 2, 0], [0, 0, 0], [30, 0, 10]])  # true class by predicted class
NAMES = ["background", "<b>&", "a cone with a long name that goes on"]


def decode(png):
    image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image[..., ::-1]


def where(image, colour):
    """Pixels [H, W] of exactly this colour."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)] if isinstance(colour, str) else colour
    return (image == np.array(rgb)).all(axis=2)


def blue(share):
    return [round(255 * c) for c in colormaps["Blues"](share)[:3]]


def test_confusion_is_by_row():
    png = confusion_plot(MATRIX, NAMES, 2)
    assert png == confusion_plot(MATRIX * np.array([[7], [1], [3]]), NAMES, 2)
    image = decode(png)
    side = 2.5
    assert image.shape == (round((side + 2) * DPI), round((side + 3) * DPI), 3)
    cells = {share: where(image, blue(share)).sum() for share in (0.8, 0.75, 0.6)}
    assert cells[0.8] > 3000
    assert cells[0.75] > 3000
    assert cells[0.6] < 200  # the colour bar has it too


def test_a_row_without_pixels_is_grey():
    grey = "#D8DCE0"
    assert where(decode(confusion_plot(MATRIX, NAMES, 2)), grey).sum() > 3 * 3000
    assert not where(decode(confusion_plot(MATRIX + 1, NAMES, 2)), grey).any()


@pytest.mark.parametrize(("first_new", "lines"), [(0, False), (1, True), (2, True), (3, False)])
def test_lines_between_old_and_new(first_new, lines):
    found = where(decode(confusion_plot(MATRIX, NAMES, first_new)), COLOURS[1])
    assert (found.sum(axis=1).max() > 200) == lines
    assert (found.sum(axis=0).max() > 200) == lines


def test_values_in_cells_of_few_classes(monkeypatch):
    png = confusion_plot(MATRIX, NAMES, 2)
    monkeypatch.setattr(plots, "MAX_CELLS_WITH_VALUES", 2)
    assert png != confusion_plot(MATRIX, NAMES, 2)


def test_of_many_classes_every_second_has_a_label(monkeypatch):
    monkeypatch.setattr(plots, "MAX_LABELS", 2)
    png = confusion_plot(MATRIX, NAMES, 2)
    assert png == confusion_plot(MATRIX, [NAMES[0], "hidden", NAMES[2]], 2)
    assert png != confusion_plot(MATRIX, [*NAMES[:2], "shown"], 2)


def test_many_classes_fit_a_page():
    image = decode(confusion_plot(np.eye(151, dtype=int), [f"class {i}" for i in range(151)], 100))
    assert image.shape == (13 * DPI, 14 * DPI, 3)


def longest_run(image, colour):
    return where(image, colour).sum(axis=1).max()


def test_bars_are_as_long_as_the_iou():
    half, whole = (decode(class_bars(["a"], None, [iou])) for iou in (0.5, 1.0))
    assert longest_run(whole, COLOURS[0]) == pytest.approx(2 * longest_run(half, COLOURS[0]), abs=4)
    assert half.shape[1] == 8 * DPI


def test_before_and_after():
    image = decode(class_bars(NAMES, [0.5, None, None], [0.25, 0.25, float("nan")]))
    before, after = where(image, COLOURS[4]), where(image, COLOURS[0])
    assert longest_run(image, COLOURS[4]) == pytest.approx(2 * longest_run(image, COLOURS[0]), abs=4)
    long = (after.sum(axis=1) > 50).sum(), (before.sum(axis=1) > 50).sum()  # legend patches are shorter
    assert long[0] == pytest.approx(2 * long[1], abs=4)
    assert np.flatnonzero(before.sum(axis=1) > 50).min() < np.flatnonzero(after.sum(axis=1) > 50).min()


def test_many_bars_stay_within_reason():
    image = decode(class_bars([f"class {i}" for i in range(41)], [0.1] * 41, [0.2] * 41))
    assert image.shape[0] == pytest.approx((41 * 0.2 + 1.4) * DPI, abs=1)


CURVES = (Curve("mib", [0.6, 0.4], [0.02, 0.03]), Curve("rcil", [0.6, None], [0.02, None]))


def test_joint_is_a_dashed_line():
    png = step_curves([Panel("all", CURVES, [Curve("joint", [0.7], [0.01])])], ["0", "1"], title="t")
    image = decode(png)
    row = where(image, COLOURS[2])[: image.shape[0] * 3 // 4]  # above the legend
    height = row.sum(axis=1).argmax()
    dashes = np.flatnonzero(np.diff(row[height].astype(int)) == 1)
    assert len(dashes) > 10
    higher = decode(step_curves([Panel("all", CURVES, [Curve("joint", [0.75], [0.01])])], ["0", "1"], title="t"))
    assert where(higher, COLOURS[2])[: image.shape[0] * 3 // 4].sum(axis=1).argmax() < height


def test_a_curve_falls_where_its_numbers_do():
    image = decode(step_curves([Panel("", [Curve("a", [0.8, 0.2])])], ["0", "1"], title=""))
    ys, xs = np.nonzero(where(image, COLOURS[0])[: image.shape[0] * 3 // 4])
    assert np.corrcoef(xs, ys)[0, 1] > 0.99
    flat = decode(step_curves([Panel("", [Curve("a", [0.8, None])])], ["0", "1"], title=""))
    _, alone = np.nonzero(where(flat, COLOURS[0])[: image.shape[0] * 3 // 4])
    assert np.ptp(alone) < 20


def test_error_bars():
    with_bars = decode(step_curves([Panel("", [Curve("a", [0.5, 0.5], [0.1, 0.1])])], ["0", "1"], title=""))
    without = decode(step_curves([Panel("", [Curve("a", [0.5, 0.5])])], ["0", "1"], title=""))
    tall = [np.ptp(np.nonzero(where(i, COLOURS[0])[: i.shape[0] * 3 // 4])[0]) for i in (with_bars, without)]
    assert tall[0] > 5 * tall[1]


def test_panels_stand_side_by_side():
    panels = [Panel(title, CURVES) for title in ("first", "later", "all")]
    wide, narrow = (decode(step_curves(panels[:count], ["0", "1"], title="t")) for count in (3, 1))
    assert wide.shape == (round(4.6 * DPI), round((3 * 3.6 + 0.4) * DPI), 3)
    assert narrow.shape == (round(4.6 * DPI), round(6.4 * DPI), 3)


def test_same_input_same_bytes_and_no_metadata():
    for draw in (
        lambda: confusion_plot(MATRIX, NAMES, 2),
        lambda: class_bars(NAMES, None, [0.1, None, 0.3]),
        lambda: step_curves([Panel("p", CURVES)], ["0", "1"], title="t"),
    ):
        png = draw()
        assert png == draw()
        assert b"matplotlib" not in png.lower()
        assert b"tEXt" not in png
        assert b"tIME" not in png


def test_a_dollar_is_no_formula():
    name = r"$\frac{$"
    assert decode(class_bars([name], None, [0.5])).size
    assert decode(step_curves([Panel("", [Curve(name, [0.5])])], [name], title=name)).size


def test_letters_outside_the_font_are_no_error():
    assert decode(class_bars(["叉车"], None, [0.5])).size


def test_no_torch_and_no_pyplot():
    code = (
        "import sys, rcil.report.pages, rcil.report.plots as plots;"
        "plots.class_bars(['a'], None, [0.5]);"
        "print(sorted({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_intervals_are_bars_around_dots():
    estimates = [Estimate("ball", 10.0, (5.0, 15.0), "#cf222e"), Estimate("one scene", 3.0, None, "#1a7f37")]
    image = decode(interval_plot([("Old classes", "drop, points", 5.0, estimates), ("New", "IoU, %", None, [])]))
    bar = [round(255 * 0.55 + 0.45 * c) for c in (0xCF, 0x22, 0x2E)]
    columns = np.flatnonzero((np.abs(image.astype(int) - bar) <= 2).all(axis=2).any(axis=0))
    dot = np.flatnonzero(where(image, "#cf222e").any(axis=0))
    assert np.ptp(columns) > 100 and abs(columns.mean() - dot.mean()) < 5, "the dot is in the middle of its bar"
    other = np.flatnonzero(where(image, "#1a7f37").any(axis=0))
    assert 0 < np.ptp(other) < 20 and other.max() < columns.min()


def test_training_curves_show_every_term_and_the_best_epoch():
    rows = [{"epoch": e, "iteration": i, "lr": 0.1, "ce": 1 / (e + i), "kd": 0.1 * i} for e in (0, 1) for i in (1, 2)]
    held_out = [{"epoch": e, "iteration": 2, "held_out_miou": miou} for e, miou in ((0, 0.5), (1, 0.4))]
    image = decode(training_curves([*rows, *held_out]))
    half = image.shape[1] // 2
    for colour in COLOURS[:2]:
        assert where(image[:, :half], colour).sum() > 50
    best, line = (np.flatnonzero(where(image[:, half:], COLOURS[i]).any(axis=0)) for i in (1, 0))
    assert best.min() <= line.min() + 5, "the first epoch is the best"
    assert decode(training_curves(rows)).shape == image.shape
