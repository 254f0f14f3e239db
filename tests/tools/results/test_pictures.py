from dataclasses import replace

import cv2
from tiny_tables import tiny, tiny_data

from rcil.data.site import read_site
from tools.results.cell import run_cell
from tools.results.cells import cells_of
from tools.results.pages import as_page, write_table
from tools.results.pictures import draw_pictures, large_classes
from tools.results.summary import summarise_table
from tools.results.tables import TABLES


def test_shown_rows_become_a_picture_once_all_are_there(tmp_path):
    tiny_data(tmp_path / "data" / "site", ())
    table = replace(tiny(TABLES["site-5-5-overlapped"], rows=2), pictures=("fine-tuning", "LwF"))
    cells = list(cells_of(table, tmp_path / "data"))
    run_cell(cells[0].task, tmp_path / cells[0].id, step0=None, held_out=False)
    draw_pictures(table, cells, tmp_path, tmp_path)
    assert not (tmp_path / f"{table.name}-images.jpg").exists()
    run_cell(cells[1].task, tmp_path / cells[1].id, step0=tmp_path / cells[0].id, held_out=False)
    draw_pictures(table, cells, tmp_path, tmp_path)
    height, width, _ = cv2.imread(str(tmp_path / f"{table.name}-images.jpg")).shape
    assert height > 3 * 48 and width >= 4 * 48  # three images; image, truth and two methods
    document = summarise_table(table, cells, tmp_path)
    write_table(table, document, tmp_path)
    shown = f"]({table.name}-images.jpg)"
    assert shown in (tmp_path / f"{table.name}.md").read_text()
    assert shown not in as_page(table, document, pictured=False)


def test_a_table_without_pictures_draws_none(tmp_path):
    table = tiny(TABLES["site-5-5-disjoint"], rows=1)
    draw_pictures(table, list(cells_of(table, tmp_path)), tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_images_are_chosen_by_classes_that_can_be_seen(tmp_path):
    tiny_data(tmp_path / "site", ())
    data = read_site(tmp_path / "site")
    assert large_classes(data) == list(data.names[1:])  # a square of 32 in one of ten images: 4 % of all pixels
    for sample in data.splits["val"]:
        mask = cv2.imread(str(sample.mask), cv2.IMREAD_UNCHANGED)
        if mask.max() == 1:
            mask[:] = 0
            mask[0, 0] = 1
            cv2.imwrite(str(sample.mask), mask)
    assert large_classes(read_site(tmp_path / "site")) == list(data.names[2:])


def test_rows_that_are_not_complete_say_so(tmp_path):
    tiny_data(tmp_path / "data" / "site", ())
    table = tiny(TABLES["site-5-5-overlapped"], rows=1)
    table = replace(table, replicas={**table.replicas, "another": {**next(iter(table.replicas.values())), "seed": 7}})
    first, second = cells_of(table, tmp_path / "data")
    run_cell(first.task, tmp_path / first.id, step0=None, held_out=False)
    page = as_page(table, summarise_table(table, [first, second], tmp_path), pictured=False)
    assert "| fine-tuning (1 of 2 runs) |" in page and "**1 cells are missing.**" in page
