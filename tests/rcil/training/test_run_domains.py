"""Whole runs over domains: the classes stay, the scenes change."""

import csv

import pytest
import torch
from safetensors.torch import load_file

from rcil.model.header import read_header
from rcil.tasks.load import load_task
from rcil.training.run import run_task

CLASSES = ["background", "ball", "cone"]


@pytest.mark.parametrize(("name", "terms"), [("fine-tuning", {"ce"}), ("rcil", {"ce", "pcd_spatial", "pcd_channel"})])
def test_two_domains_and_an_interruption(domain_file, tmp_path, name, terms):
    task = load_task(
        domain_file, [f"method.name={name}", "training.epochs=[1, 2]", "training.crop=32", "data.scale=0.5"]
    )
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    results = run_task(task, whole)
    assert [step["teaches"] for step in results["steps"]] == [["day"], ["night"]]
    for index, step in enumerate(results["steps"]):
        assert [c["name"] for c in step["classes"]] == CLASSES
        assert step["miou"]["new"] == step["miou"]["all"], "no class is old"
        metadata = read_header(whole / f"step{index}.safetensors").metadata
        assert [(c.name, c.id, c.step) for c in metadata.classes] == [(n, row, 0) for row, n in enumerate(CLASSES)]
        assert (metadata.step, [entry.step for entry in metadata.lineage]) == (index, list(range(index + 1)))
    log = next(csv.DictReader((whole / "step1" / "log.csv").read_text().splitlines()))
    assert terms == {column for column in log if column in ("ce", "kd", "unce", "unkd") or column.startswith("pcd")}
    before, after = (load_file(whole / f"step{index}.safetensors") for index in (0, 1))
    heads = [key for key in after if key.startswith("classifier")]
    assert heads and heads == [key for key in before if key.startswith("classifier")]
    assert all(before[key].shape == after[key].shape for key in heads)
    assert any(not torch.equal(before[key], after[key]) for key in heads), "step 1 trains the same rows on"

    def interrupt(event):
        if (event.step, event.epoch) == (1, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(task, cut, step0_of=whole, listen=interrupt)
    assert run_task(task, cut, resume=True) == results
    again = load_file(cut / "step1.safetensors")
    assert again.keys() == after.keys() and all(torch.equal(again[key], after[key]) for key in after)
