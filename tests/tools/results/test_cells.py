from dataclasses import replace
from pathlib import Path

from tools.results.cells import cells_of
from tools.results.tables import TABLES


def cell(table, row="MiB", replica=0, data=Path("data")):
    chosen = TABLES[table]
    name = list(chosen.replicas)[replica]
    (found,) = [c for c in cells_of(chosen, data) if (c.row, c.replica) == (row, name)]
    return found


def test_a_cell_is_known_by_what_it_does():
    first = cell("camvid-6-1-overlapped")
    assert first.id.startswith("mib-")
    assert first.id == cell("camvid-6-1-overlapped", data=Path("elsewhere")).id
    renamed = replace(TABLES["camvid-6-1-overlapped"], title="Another title")
    assert first.id in {c.id for c in cells_of(renamed, Path("data"))}
    others = [
        cell("camvid-6-1-overlapped", replica=1),
        cell("camvid-6-1-disjoint"),
        cell("camvid-6-1-overlapped", "LwF"),
    ]
    assert len({first.id, *(other.id for other in others)}) == 4


def test_who_shares_a_first_step():
    mib = cell("camvid-6-1-overlapped").first_step
    for shared in (
        cell("camvid-6-5-overlapped"),
        cell("camvid-6-1-overlapped", "RCIL"),
        cell("camvid-6-5-overlapped", "PLOP"),
    ):
        assert shared.first_step == mib, shared
    for other in (
        cell("camvid-6-1-disjoint"),
        cell("camvid-6-1-overlapped", replica=1),
        cell("camvid-6-1-overlapped", "SDR"),
        cell("camvid-6-1-overlapped", "LwF-MC"),
        cell("camvid-6-1-overlapped", "joint"),
        cell("camvid-domains"),
    ):
        assert other.first_step != mib, other


def test_joint_training_is_one_run_whatever_the_steps():
    one, other = (cell(table, "joint") for table in ("camvid-6-1-overlapped", "camvid-6-5-disjoint"))
    assert one.id == other.id
    assert one.first_classes == cell("camvid-6-1-overlapped").first_classes == other.first_classes
    assert "sky" in one.first_classes and "tree" not in one.first_classes


def test_overrides_reach_the_task():
    found = cell("site-beyond", "RCIL+ with a memory of 5")
    assert (found.task.training.memory, found.task.training.memory_share) == (5, None)
    assert found.task.method.options["balance"] == "new"
    assert found.task.data.root == Path("data/site")
