import json

import cv2
import numpy as np
import pytest
from sites import write_sample

from rcil.core.errors import ConfigError
from rcil.data.site import read_site
from tools.results.data import SEQUENCES, prepare


@pytest.fixture
def camvid(tmp_path):
    """A few frames of every sequence, whose masks tell the place of a pixel."""
    mask = np.arange(360 * 480).reshape(360, 480) // 28800  # six values, a band each
    for sequence in SEQUENCES:
        for frame in range(5):
            write_sample(tmp_path / "camvid", "train", f"{sequence}_{frame:03}", mask)
    write_sample(tmp_path / "camvid", "val", "0016E5_900", mask)
    (tmp_path / "camvid" / "classes.txt").write_text("\n".join(f"c{i}" for i in range(6)))
    return tmp_path / "camvid"


def test_tiles_make_up_the_image(camvid, tmp_path):
    site = prepare("camvid", tmp_path / "data", camvid)
    masks = site / "masks" / "train"
    assert len(list(masks.iterdir())) == 15 * 6
    rows = [
        np.hstack(
            [cv2.imread(str(masks / f"0016E5_000_{top}_{left}.png"), cv2.IMREAD_UNCHANGED) for left in (0, 80, 160)]
        )
        for top in (0, 90)
    ]
    whole = cv2.imread(str(camvid / "masks" / "train" / "0016E5_000.png"), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(np.vstack(rows), whole[::2, ::2])
    data = read_site(site)
    assert (len(data.splits["train"]), len(data.splits["val"])) == (90, 6)
    assert prepare("camvid", tmp_path / "data", None) == site  # is there already


def test_sequences_are_domains_and_each_is_tested(camvid, tmp_path):
    site = prepare("camvid-sequences", tmp_path / "data", camvid)
    data = read_site(site)
    tested, trained = ({s.name.rsplit("_", 2)[0] for s in data.splits[split]} for split in ("val", "train"))
    assert tested == {"0001TP_004", "0006R0_004", "0016E5_900"}
    assert len(trained) == 13 and not trained & tested
    assert {sample.domain for sample in data.splits["train"]} == set(SEQUENCES)
    assert json.loads((site / "dataset.json").read_text())["image_domains"]["val/0001TP_004_0_80"] == "0001TP"


def test_without_camvid_it_says_what_to_give(tmp_path):
    for given in (None, tmp_path):
        with pytest.raises(ConfigError, match=r"--camvid DIR"):
            prepare("camvid", tmp_path / "data", given)
    assert not (tmp_path / "data" / "camvid").exists()


def test_whole_images_are_linked_and_not_copied(camvid, tmp_path):
    site = prepare("camvid-whole", tmp_path / "data", camvid)
    assert site.is_symlink() and len(read_site(site).splits["train"]) == 15
    assert prepare("camvid-whole", tmp_path / "data", None) == site  # is there already


def test_without_voc_it_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match="PASCAL VOC 2012 is not in") as error:
        prepare("voc-animals", tmp_path / "data", None, tmp_path)
    assert "--voc DIR" in error.value.hint
