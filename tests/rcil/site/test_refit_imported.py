"""Refitting of checkpoints of the research code: only the rows change, and they fit the images better."""

import cv2
import numpy as np
import pytest
import torch
from official_models import TINY
from official_recipe import state_dict
from sites import write_sample

from rcil.checkpoint.importers import import_file
from rcil.data.site import read_site
from rcil.evaluation.evaluate import evaluate
from rcil.inference import load
from rcil.site.refit import refit

NAMES = ["background", "a", "b", "c", "d", "e", "f"]


def imported(state, folder, name):
    """A checkpoint from an official file on the disk, as its training writes it."""
    wrapped = {"epoch": 29, "model_state": {f"module.{key}": value for key, value in state.items()}}
    torch.save(wrapped, folder / f"{name}.pth")
    import_file(folder / f"{name}.pth", folder / f"{name}.safetensors", names=NAMES)
    return folder / f"{name}.safetensors"


def site_of(folder, taught):
    """Images with a square of every class; masks for training name those in `taught`, others are background."""
    mask = np.zeros((48, 72), np.uint8)
    for index in range(1, len(NAMES)):
        top, left = 2 + 24 * ((index - 1) // 3), 2 + 24 * ((index - 1) % 3)
        mask[top : top + 20, left : left + 20] = index
    for number in range(2):
        write_sample(folder, "val", f"val_{number}", mask)
        write_sample(folder, "train", f"train_{number}", mask)
        label = folder / "masks" / "train" / f"train_{number}.png"
        cv2.imwrite(str(label), np.where(np.isin(mask, taught), mask, 0))
    (folder / "classes.txt").write_text("\n".join(NAMES) + "\n")
    return folder


def mean_iou(model, site, names):
    data = read_site(site, record=False)
    report = evaluate(load(model), data, data.splits["val"])
    return np.mean([c.iou for c in report.classes if c.name in names])


def check_only_rows_changed(one, other):
    first, second = load(one).network.state_dict(), load(other).network.state_dict()
    changed = {key for key in first if not torch.equal(first[key], second[key])}
    assert changed and all(key.startswith("classifier.") for key in changed)


def test_a_model_with_one_branch(tmp_path):
    """As PLOP and MiB save it: the keys of RCIL's second branches are missing."""
    state = {key: value for key, value in state_dict(TINY["keys_step0"]).items() if "_new" not in key}
    model, output = imported(state, tmp_path, "plop"), tmp_path / "better.safetensors"
    known = NAMES[: len(load(model).classes)]
    site = site_of(tmp_path / "site", range(1, len(known)))
    assert refit(model, site, output)["pixels"] > 0
    assert mean_iou(output, site, known) > mean_iou(model, site, known) + 0.1
    check_only_rows_changed(model, output)
    metadata = load(output).metadata
    assert metadata.method == "single-branch (MiB, PLOP)"
    assert [entry.source for entry in metadata.lineage] == ["import of plop.pth", "rcil refit"]


@pytest.mark.slow
def test_a_later_step_whose_old_classes_the_previous_model_predicts(tmp_path):
    """A checkpoint with two branches, one of them merged; the masks name the classes of the last step alone."""
    first, second = (imported(state_dict(TINY[f"keys_step{n}"]), tmp_path, f"step{n}") for n in (0, 1))
    output = tmp_path / "better.safetensors"
    old, names = len(load(first).classes), [c.name for c in load(second).classes]
    assert names == NAMES and load(second).metadata.architecture.rc.old == "merged"
    site = site_of(tmp_path / "site", range(old, len(NAMES)))
    assert refit(second, site, output, previous=first)["previous"] == "step0.safetensors"
    assert mean_iou(output, site, NAMES[old:]) > mean_iou(second, site, NAMES[old:]) + 0.1
    check_only_rows_changed(second, output)
