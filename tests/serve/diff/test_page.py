import re

import numpy as np
import pytest

from rcil.model.metadata import class_table
from rcil_serve.diff.findings import findings_of
from rcil_serve.diff.page import as_html, clock, steps
from rcil_serve.diff.panels import jpeg
from rcil_serve.diff.tally import Tally
from rcil_serve.diff.transitions import Codes, common_classes
from rcil_serve.stream.frames import Frame


@pytest.fixture
def page():
    """Three seconds: half of the pixels of a class with a difficult name are forgotten in two of them."""
    classes = common_classes(class_table([["background", "<b>&"]]), class_table([["background", "<b>&", "road"]]))
    codes = Codes(classes)
    tally = Tally(codes, lambda frame, mask: jpeg(np.full((8, 8, 3), 10 * frame.index, np.uint8)))
    old = np.ones((10, 10), np.uint8)
    for second in range(3):
        new = np.ones((10, 10), np.uint8)
        new[: 5 * (second > 0)] = 0
        tally.add(Frame(second, second, second, np.zeros((10, 10, 3), np.uint8), 0.0), codes.of(old, new))
    return as_html(findings_of(tally, classes), classes.table, {"Source": "a<b.mp4"}, ["look <here>"])


def test_the_page_refers_to_nothing_outside(page):
    assert set(re.findall(r'src="(.*?)[;,]', page)) == {"data:image/png", "data:image/jpeg"}
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"<script|href=|url\(|https?:", page)
    assert "prefers-color-scheme: dark" in page


def test_names_are_text(page):
    assert "<b>&" not in page.replace("<figcaption><b>", "") and "&lt;b&gt;&amp;" in page
    assert "a&lt;b.mp4" in page and "Warning: look &lt;here&gt;." in page


def test_numbers_and_pictures_are_there(page):
    assert "33.3 % of all pixels changed: 33.3 % suspected forgotten (&lt;b&gt;&amp;)." in page
    assert page.count("<figure>") == page.count("data:image/jpeg") == 2
    assert page.index("1. 0:01") < page.index("2. 0:02")
    (key,) = re.findall(r'<p class="key">(.*?)</p>', page)
    assert key.count("entry") == 1, "road is never seen"
    cells = re.findall(r'<td style="background: rgb\((.*?)\)" title="(.*?)">(.*?)</td>', page)
    assert cells == [
        ("213 94 0 / 35%", "forgotten: 100 pixels", "33.3"),
        ("128 136 144 / 40%", "same: 200 pixels", "66.7"),
    ]


def test_tags_are_closed(page):
    for tag in ("section", "table", "tr", "td", "th", "figure", "figcaption", "p", "div", "span", "b"):
        assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag


def test_times_without_frames_are_zero():
    times, shares = steps(np.array([0.0, 1.0, 5.0]), np.array([[0.1], [0.2], [0.3]]), 1.0)
    assert times.tolist() == [0, 1, 2, 5, 6]
    assert shares.ravel().tolist() == [0.1, 0.2, 0, 0.3, 0]


def test_times_as_people_write_them():
    assert [clock(second) for second in (0, 59, 61, 3725)] == ["0:00", "0:59", "1:01", "1:02:05"]
