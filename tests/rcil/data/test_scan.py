import numpy as np
import pytest
from sites import make_site, write_sample

from rcil.core.reading import DataError
from rcil.data import scan
from rcil.data.scan import data_digest
from rcil.data.site import read_site


def test_masks_are_read_again_only_when_they_changed(tmp_path, monkeypatch):
    site = make_site(tmp_path / "site", splits=("train", "val"), images=2)
    data = read_site(site)
    assert set(scan.present_classes(data, "train").values()) == {frozenset({0, 1, 2})}
    real, read = scan.read_mask, []
    monkeypatch.setattr(scan, "read_mask", lambda path: read.append(path.name) or real(path))
    scan.present_classes(data, "train")
    assert read == []
    write_sample(site, "train", "train_1", np.full((64, 96), 2, np.uint8))
    assert scan.present_classes(data, "train")["train_1"] == frozenset({2})
    assert read == ["train_1.png"]


def test_a_mask_that_is_gone_is_named(tmp_path):
    data = read_site(make_site(tmp_path / "site", images=2))
    data.splits["val"][0].mask.unlink()
    with pytest.raises(DataError, match=r"val_0\.png"):
        scan.present_classes(data, "val")


def test_order_does_not_matter_and_content_does(tmp_path):
    samples = read_site(make_site(tmp_path / "site")).splits["train"]
    before = data_digest(samples)
    assert before == data_digest(reversed(samples))
    assert before != data_digest(samples[1:])
    samples[0].mask.write_bytes(samples[0].mask.read_bytes() + b"x")
    assert before != data_digest(samples)
