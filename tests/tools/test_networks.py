"""Rows of the table in docs/networks.md are added, and replaced by network."""

import pytest

from tools import networks

HEAD = ["| network | pairs |", "|---|---|"]


def test_rows_are_added_and_replaced():
    first = networks.updated([], [*HEAD, "| Unet | 1 |"])
    both = networks.updated(first, [*HEAD, "| FPN | 2 |"])
    assert networks.updated(both, [*HEAD, "| Unet | 3 |"]) == [*HEAD, "| Unet | 3 |", "| FPN | 2 |"]


def test_other_parts_of_the_page_stay(tmp_path, monkeypatch):
    page = tmp_path / "networks.md"
    page.write_text("before\n<!-- table -->\n<!-- end of table -->\nafter\n")
    monkeypatch.setattr(networks, "PAGE", page)
    monkeypatch.setattr(networks, "row_of", lambda factory, args: [*HEAD, f"| {factory} | 1 |"])
    networks.main(["unet"])
    row = "| segmentation_models_pytorch:Unet | 1 |"
    assert page.read_text().splitlines() == [
        "before",
        "<!-- table -->",
        *HEAD,
        row,
        "<!-- end of table -->",
        "after",
    ]


def test_an_unknown_network():
    with pytest.raises(KeyError):
        networks.main(["missing"])
