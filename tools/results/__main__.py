"""Fill the tables of docs/results: `make results`, or `python -m tools.results [TABLE ...]`.

Every cell is a run in its own folder. The command can be interrupted at any time: finished cells stay, and an
unfinished cell continues. Cells that the pages already contain are not run again unless `--again` is given.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rcil.core.errors import RcilError, did_you_mean
from tools.results.cells import cells_of
from tools.results.data import prepare
from tools.results.pages import write_table
from tools.results.pictures import draw_pictures
from tools.results.runner import run_cells
from tools.results.summary import published_cells, summarise_table
from tools.results.tables import TABLES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"all by default: {', '.join(TABLES)}")
    parser.add_argument("--rows", help="run only these rows, separated by commas")
    parser.add_argument("--replicas", type=int, metavar="N", help="run only the first N seeds or orders")
    parser.add_argument("--runs", type=Path, default=Path("results"), help="folder of data and runs (results)")
    parser.add_argument("--camvid", type=Path, help="folder with CamVid: images/, masks/, classes.txt")
    parser.add_argument("--voc", type=Path, help="folder with animals of PASCAL VOC, in the same layout")
    parser.add_argument("--workers", type=int, default=2, help="concurrent cells, one thread each (2)")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="folder for the pages (%(default)s)")
    parser.add_argument("--again", action="store_true", help="also run cells that the pages already contain")
    parser.add_argument("--only-pages", action="store_true", help="run nothing, only write the pages of finished cells")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.tables if name not in TABLES]
    if unknown:
        print(f"unknown table '{unknown[0]}'. {did_you_mean(unknown[0], TABLES)}", file=sys.stderr)
        return 2
    chosen = [TABLES[name] for name in arguments.tables or TABLES]
    data, runs = arguments.runs / "data", arguments.runs / "runs"
    try:
        for name in () if arguments.only_pages else dict.fromkeys(table.data for table in chosen):
            prepare(name, data, arguments.camvid, arguments.voc)
    except RcilError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    cells = {table.name: list(cells_of(table, data)) for table in chosen}
    runs.mkdir(parents=True, exist_ok=True)
    published = {} if arguments.again or not arguments.pages.is_dir() else published_cells(arguments.pages)
    failed = []
    if not arguments.only_pages:
        rows = arguments.rows.split(",") if arguments.rows else None
        replicas = {table.name: list(table.replicas)[: arguments.replicas] for table in chosen}
        wanted = [
            cell
            for cells_of_table in cells.values()
            for cell in cells_of_table
            if (rows is None or cell.row in rows) and cell.replica in replicas[cell.table]
        ]
        known = [cell for table in TABLES.values() for cell in cells_of(table, data)]
        failed = run_cells(wanted, runs, arguments.workers, lambda text: print(text, flush=True), published, known)
    for table in chosen:
        pages = arguments.pages / table.folder
        pages.mkdir(parents=True, exist_ok=True)
        document = summarise_table(table, cells[table.name], runs, published)
        if document["rows"]:
            publishable = table.data.startswith("site")  # images of CamVid are not published
            draw_pictures(table, cells[table.name], runs, pages if publishable else arguments.runs)
            write_table(table, document, pages)
            print(f"{pages / table.name}.md: {document['missing']} cells missing")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
