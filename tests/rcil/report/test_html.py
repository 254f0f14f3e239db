import re

import pytest

from rcil.core.errors import RcilError
from rcil.report.html import (
    BannerBlock,
    GalleryBlock,
    ImageBlock,
    Mark,
    StepsBlock,
    TableBlock,
    TextBlock,
    as_html,
    write_page,
)

ODD = "<b>&\"'"
TABLE = TableBlock(
    "IoU", ("class", "IoU", "pixels"), [(ODD, 61.25, 1234567), ("cone", None, 0), ("x", float("nan"), 7)]
)


def test_cells(parse):
    page = parse(as_html("t", "", [TABLE]))
    assert page.rows == [
        ["class", "IoU", "pixels"],
        [ODD, "61.2", "1\u202f234\u202f567"],
        ["cone", "–", "0"],
        ["x", "–", "7"],
    ]
    heads = [attrs.get("scope") for tag, attrs in page.tags if tag == "th"]
    assert heads == ["col"] * 3 + ["row"] * 3


def test_everything_is_escaped(parse):
    blocks = [
        TextBlock(f"text {ODD}"),
        TableBlock(f"table {ODD}", (f"column {ODD}",), [(f"cell {ODD}",)], f"table note {ODD}"),
        ImageBlock(f"image {ODD}", b"png", f"alt {ODD}", f"image note {ODD}"),
    ]
    page = parse(as_html(f"title {ODD}", f"subtitle {ODD}", blocks))
    assert "b" not in {tag for tag, _ in page.tags}
    for place in ("title", "subtitle", "text", "table", "column", "cell", "table note", "image", "image note"):
        assert f"{place} {ODD}" in page.text
    (image,) = (attrs for tag, attrs in page.tags if tag == "img")
    assert image["alt"] == f"alt {ODD}"


def test_paragraphs(parse):
    page = parse(as_html("t", "", [TextBlock("one\nstill one\n\n two\n \nthree\n")]))
    assert [tag for tag, _ in page.tags].count("p") == 3
    assert "one\nstill one" in page.text


def test_nothing_is_fetched(parse):
    text = as_html("t", "s", [TABLE, ImageBlock("i", b"\x89PNG", "a")])
    page = parse(text)
    assert page.references == ["data:image/png;base64,iVBORw=="]
    assert not re.search(r"url\(|@import|https?:|<script|//", text)
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_written_whole_or_not_at_all(parse, tmp_path):
    path = tmp_path / "new" / "page.html"
    write_page(path, "Übersicht \udcff", "", [TextBlock("hello")])
    assert "Übersicht ?" in parse(path.read_text(encoding="utf-8")).text
    with pytest.raises(AssertionError, match="1 cells in a table of 3"):
        write_page(path, "t", "", [TableBlock("t", ("a", "b", "c"), [("x",)])])
    assert "hello" in path.read_text(encoding="utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").touch()
    with pytest.raises(RcilError, match="cannot write"):
        write_page(tmp_path / "file" / "page.html", "t", "", [])


def test_banner_steps_and_gallery(parse):
    blocks = [
        BannerBlock("REJECTED", "a < b", "bad"),
        TableBlock("t", ("x", "y"), [("a", Mark("<kept>", "good"))]),
        GalleryBlock("Pictures", [ImageBlock("one", b"\xff\xd8", "alt", "poor & bad")], "How to read them."),
        StepsBlock("Next", [("Do it:", "rcil x > y"), ("Rest.", "")]),
    ]
    text = as_html("t", "", blocks)
    page = parse(text)
    assert '<div class="banner bad" role="status">' in text and "REJECTED" in page.text and "a < b" in page.text
    assert '<td><span class="mark good">&lt;kept&gt;</span></td>' in text
    assert page.references == ["data:image/jpeg;base64,/9g="]
    assert "<h3>one <span>poor &amp; bad</span></h3>" in text and "How to read them." in page.text
    assert text.count("<li>") == 2 and text.count("<pre>") == 1 and "<pre>rcil x &gt; y</pre>" in text
