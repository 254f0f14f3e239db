"""A tiny version of every table runs and becomes a page."""

import json
from pathlib import Path

import pytest
from tiny_tables import tiny, tiny_data

from rcil.methods import make_method
from tools.results import runner
from tools.results.cell import run_cell
from tools.results.cells import cells_of
from tools.results.data import SEQUENCES, SITE_DOMAINS
from tools.results.pages import write_table
from tools.results.summary import published_cells, summarise_table
from tools.results.tables import TABLES

DOMAINS = {"camvid-sequences": SEQUENCES, "site-domains": SITE_DOMAINS}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in {table.data for table in TABLES.values()}:
        tiny_data(folder / name, DOMAINS.get(name, ()))
    return folder


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_is_a_valid_task(name):
    table = TABLES[name]
    cells = list(cells_of(table, Path("data")))
    runs = [(row, replica) for row in table.rows for replica in table.replicas if table.has(row, replica)]
    assert len({cell.id for cell in cells}) == len(cells) == len(runs)
    for cell in cells:
        make_method(cell.task.method.name, **cell.task.method.options)


def run(table, data, tmp_path):
    cells = list(cells_of(table, data))
    for cell in cells:
        run_cell(cell.task, tmp_path / cell.id, step0=None, held_out=cell.held_out)
    document = summarise_table(table, cells, tmp_path)
    write_table(table, document, tmp_path)
    return json.loads((tmp_path / f"{table.name}.json").read_text()), (tmp_path / f"{table.name}.md").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_a_tiny_version_runs(name, data, tmp_path):
    table = tiny(TABLES[name], rows=1, steps=2)
    document, page = run(table, data, tmp_path)
    (title, row), *_ = document["rows"].items()
    assert len(row["curve"]) == 2 and document["missing"] == 0
    assert f"| {title} | " in page and f"python -m tools.results {name}" in page
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_all_rows_run(name, data, tmp_path):
    table = tiny(TABLES[name], rows=len(TABLES[name].rows))
    document, _ = run(table, data, tmp_path)
    assert list(document["rows"]) == list(TABLES[name].rows)
    assert document["missing"] == 0


def test_cells_run_beside_each_other_and_not_twice(data, tmp_path):
    table = tiny(TABLES["site-5-5-overlapped"], rows=2)
    cells = list(cells_of(table, data))
    said: list[str] = []
    assert runner.run_cells(cells, tmp_path, 2, said.append) == []
    assert said[0] == "2 cells to run, 0 finished before"
    first, second = (json.loads((tmp_path / cell.id / "cell.json").read_text()) for cell in cells)
    assert first["steps"][0]["classes"] == second["steps"][0]["classes"]  # one step 0 for both
    assert runner.run_cells(cells, tmp_path, 2, said.append) == []
    assert said[-1] == "0 cells to run, 2 finished before"


def test_only_a_run_that_trained_step_0_shares_it(data, tmp_path):
    leader, follower, _, third = cells_of(tiny(TABLES["site-5-5-overlapped"], rows=4), data)  # LwF-MC has sigmoids
    assert runner.run_cells([leader, follower], tmp_path, 1, lambda text: None) == []
    assert runner.run_cells([follower, third], tmp_path, 1, lambda text: None, known=[leader]) == []
    first, last = (json.loads((tmp_path / cell.id / "cell.json").read_text()) for cell in (leader, third))
    assert first["steps"][0]["classes"] == last["steps"][0]["classes"]
    assert not (tmp_path / third.id / "step0" / "best.safetensors").exists(), "trained again"


def test_a_cell_that_fails_is_told_and_the_others_go_on(data, tmp_path):
    table = tiny(TABLES["site-5-5-overlapped"], rows=2)
    broken, whole = cells_of(table, data)
    section = broken.task.data.model_copy(update={"root": data / "nowhere"})
    broken = type(broken)(
        broken.table, broken.row, broken.replica, broken.task.model_copy(update={"data": section}), False
    )
    said: list[str] = []
    assert runner.run_cells([broken, whole], tmp_path, 1, said.append) == [broken]
    assert any("failed: site-5-5-overlapped" in line and f"{broken.id}.log" in line for line in said)
    assert runner.result_of(whole, tmp_path) is not None


def test_published_cells_need_not_run_again(data, tmp_path):
    table = tiny(TABLES["site-beyond"], rows=1, steps=2)
    (cell,) = cells_of(table, data)
    document, _ = run(table, data, tmp_path)
    (tmp_path / "another.json").write_text('{"rows": {"a": {"mean": 1}}}')  # a page of another command
    published = published_cells(tmp_path)
    assert list(published) == [cell.id]
    said: list[str] = []
    elsewhere = tmp_path / "elsewhere"
    assert runner.run_cells([cell], elsewhere, 1, said.append, published) == []
    assert said == ["0 cells to run, 1 finished before"]
    write_table(table, summarise_table(table, [cell], elsewhere, published), elsewhere)
    again = json.loads((elsewhere / "site-beyond.json").read_text())
    assert again == document, "a page made of pages is the page made of runs"
    assert runner.result_of(cell, elsewhere) is None


def test_a_finished_cell_of_another_table_is_only_measured_further(data, tmp_path, monkeypatch):
    table = tiny(TABLES["site-5-5-overlapped"], rows=1)
    (cell,) = cells_of(table, data)
    folder = tmp_path / cell.id
    run_cell(cell.task, folder, step0=None, held_out=False)
    before = json.loads((folder / "cell.json").read_text())
    monkeypatch.setattr("tools.results.cell.run_task", lambda *_, **__: pytest.fail("trained again"))
    run_cell(cell.task.model_copy(update={"name": "another table"}), folder, step0=None, held_out=True)
    after = json.loads((folder / "cell.json").read_text())
    assert {key: after[key] for key in before} == before
    assert set(after["held_out"]) == {c["name"] for c in after["steps"][-1]["classes"]}
