"""The table of stages, and freed memory: kept for the process, or returned to the system."""

from rcil.core.log import StageRecord, recorded_stages
from rcil_export.resources import part, stages_document, stages_text

RECORDS = [StageRecord("checks", 12.34, 10.0, 3 * 2**30), StageRecord("checks / outputs", 2.0, 1.5, None)]


def test_the_table():
    assert stages_text(RECORDS).splitlines() == [
        "Where the time went    seconds  processor  peak GiB",
        "  checks                  12.3       10.0      3.00",
        "    outputs                2.0        1.5          ",
    ]


def test_the_document():
    assert stages_document(RECORDS)[1] == {
        "name": "checks / outputs",
        "seconds": 2.0,
        "processor_seconds": 1.5,
        "peak_bytes": None,
    }


def test_a_part_is_a_stage():
    with recorded_stages() as stages, part("work"):
        pass
    assert [record.name for record in stages.records] == ["work"]
