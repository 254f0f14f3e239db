"""Stages that are recorded."""

import mmap
import time

import pytest

from rcil.core import log as module
from rcil.core.log import recorded_stages, stage

LINUX = pytest.mark.skipif(not module.CLEAR_REFS.exists(), reason="peaks are read from /proc")


def test_stages_are_kept_in_the_order_in_which_they_began():
    with recorded_stages() as stages:
        with stage("outer"):
            with stage("inner"):
                time.sleep(0.02)
            with stage("second"):
                sum(range(300_000))
        assert [record.name for record in stages.records] == ["outer", "outer / inner", "outer / second"]
    outer, inner, second = stages.records
    assert inner.seconds >= 0.02 > inner.processor_seconds
    assert outer.seconds >= inner.seconds + second.seconds


def test_nothing_is_kept_outside_and_after_an_error():
    with recorded_stages() as stages, pytest.raises(ValueError, match="broken"), stage("outer"), stage("inner"):
        raise ValueError("broken")
    with stage("later"):
        pass
    assert stages.records == []


def test_a_stage_after_one_that_failed_is_not_inside_it():
    with recorded_stages() as stages:
        with pytest.raises(ValueError, match="broken"), stage("first"):
            raise ValueError("broken")
        with stage("second"):
            pass
    assert [record.name for record in stages.records] == ["second"]


@LINUX
def test_a_peak_is_that_of_its_own_stage_and_of_those_inside():
    with recorded_stages() as stages, stage("outer"):
        with stage("large"), mmap.mmap(-1, 2**26) as block:  # not from the heap, which may keep what is freed
            for start in range(0, 2**26, mmap.PAGESIZE):
                block[start] = 1
        with stage("small"):
            pass
    outer, large, small = (record.peak_bytes for record in stages.records)
    assert outer >= large > small + 2**25


def test_where_the_system_does_not_tell_there_is_no_peak(monkeypatch):
    monkeypatch.setattr(module, "take_peak", lambda: None)
    with recorded_stages() as stages, stage("work"):
        pass
    assert stages.records[0].peak_bytes is None


def test_without_proc_there_is_no_peak(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "STATUS", tmp_path / "none")
    assert module.take_peak() is None
