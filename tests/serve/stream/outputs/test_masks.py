import os
from fractions import Fraction

import cv2
import numpy as np
import pytest
from clips import BASE

from rcil.core.errors import ConfigError
from rcil.core.mask_classes import recorded_names
from rcil.model.metadata import ClassInfo
from rcil_serve.stream.frames import Frame, SourceInfo
from rcil_serve.stream.outputs.masks import IdTable, open_masks, write_mask
from rcil_serve.stream.outputs.movie import cut_to_fragments

INFO = SourceInfo("clip", (4, 6), Fraction(25), BASE)


def table(*ids):
    return IdTable([ClassInfo(name=str(i), id=i, colour=(0, 0, 0), step=0) for i in ids])


def test_rows_become_ids():
    mask = np.array([[0, 1, 2]], np.uint8)
    assert table(0, 1, 2).of(mask) is mask
    assert table(0, 7, 3).of(mask).tolist() == [[0, 7, 3]]
    wide = table(0, 300, 3)
    assert wide.wide and wide.of(mask).dtype == np.uint16 and wide.of(mask).tolist() == [[0, 300, 3]]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_files_and_movies_hold_the_ids(tmp_path, kind):
    import av

    ids = np.random.default_rng(0).integers(0, 200 if kind == np.uint8 else 60000, (4, 6)).astype(kind)
    frame = Frame(3, 1000, 0.1, np.zeros((4, 6, 3), np.uint8), 0.0)
    for name in ("masks", "masks.mkv"):
        output = open_masks(tmp_path / name, INFO, table(0, 1 if kind == np.uint8 else 300), offset=0.0)
        output.write(ids, frame)
        output.finish()
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "masks" / "00000003.png"), cv2.IMREAD_UNCHANGED), ids)
    names = recorded_names((tmp_path / "masks" / "00000003.png").read_bytes(), "the mask")
    assert names == ({0: "0", 1: "1"} if kind == np.uint8 else {0: "0", 300: "300"})
    with av.open(str(tmp_path / "masks.mkv")) as container:
        (found,) = container.decode(video=0)
        np.testing.assert_array_equal(found.to_ndarray(), ids)


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"masks cannot be written as \.mp4"):
        open_masks(tmp_path / "masks.mp4", INFO, table(0, 1), offset=0.0)


def test_a_mask_goes_to_its_place_whole(tmp_path):
    write_mask(tmp_path / "new" / "a.png", np.eye(5, dtype=np.uint8), table(0, 1).chunk)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.png"]


def test_writing_leaves_the_umask_alone(tmp_path, monkeypatch):
    """It belongs to the process: while one thread has it at 0, all others make files that anybody may write."""
    monkeypatch.setattr(os, "umask", lambda mode: pytest.fail("set"))
    write_mask(tmp_path / "a.png", np.eye(5, dtype=np.uint8), table(0, 1).chunk)


def test_what_follows_the_last_fragment_goes(tmp_path):
    def box(kind, size):
        return size.to_bytes(4, "big") + kind + bytes(size - 8)

    whole = box(b"ftyp", 20) + box(b"moov", 40) + box(b"moof", 30) + box(b"mdat", 50)
    for rest in (b"", box(b"moof", 30), box(b"moof", 30) + box(b"mdat", 80)[:60], b"\0\0\0"):
        (tmp_path / "m.mp4").write_bytes(whole + rest)
        cut_to_fragments(tmp_path / "m.mp4")
        assert (tmp_path / "m.mp4").read_bytes() == whole
