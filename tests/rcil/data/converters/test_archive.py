import json
import stat
import zipfile

import pytest
from exported import put_image

from rcil.core.reading import DataError
from rcil.data.converters import archive, convert

SHAPE = {"label": "post", "points": [[1, 1], [3, 1], [3, 3]], "shape_type": "polygon"}


@pytest.fixture
def files(tmp_path):
    image = put_image(tmp_path / "photo.png").read_bytes()
    (tmp_path / "photo.png").unlink()
    return {"a.png": image, "a.json": json.dumps({"shapes": [SHAPE], "imagePath": "a.png"}).encode()}


def pack(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return path


@pytest.mark.parametrize("prefix", ["", "export/", "one/two/", "train/"])
def test_archives_are_read_like_folders(tmp_path, files, prefix):
    inside = {f"{prefix}{name}": data for name, data in files.items()} | {"__MACOSX/._a.json": b"x"}
    path = pack(tmp_path / "e.zip", inside)
    assert convert("auto", path, tmp_path / "site").images == {"train": 1}
    assert (tmp_path / "site/masks/train/a.png").is_file()


@pytest.mark.parametrize("name", ["../x.png", "/x.png", "a/../../x.png", "..\\x.png", "C:\\x.png"])
def test_paths_that_lead_outside(tmp_path, files, name):
    path = pack(tmp_path / "e.zip", {**files, name: b"x"})
    with pytest.raises(DataError, match=r"e\.zip holds .* which leads outside"):
        convert("labelme", path, tmp_path / "site")
    assert [found.name for found in tmp_path.iterdir()] == ["e.zip"]


def test_links_are_refused(tmp_path, files):
    link = zipfile.ZipInfo("link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = pack(tmp_path / "e.zip", files)
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr(link, "/etc/hostname")
    with pytest.raises(DataError, match="leads outside"):
        convert("labelme", path, tmp_path / "site")


def test_archives_made_to_fill_the_disk(tmp_path, files, monkeypatch):
    monkeypatch.setattr(archive, "SMALL", 2**20)
    path = pack(tmp_path / "e.zip", {**files, "zeros": bytes(5 * 2**20)})
    with pytest.raises(DataError, match=r"would unpack to 3 files with 5 MiB\nUnpack it yourself"):
        convert("labelme", path, tmp_path / "site")
    monkeypatch.setattr(archive, "MAX_FILES", 1)
    with pytest.raises(DataError, match="would unpack to 2 files"):
        convert("labelme", pack(tmp_path / "f.zip", files), tmp_path / "site")


def test_damaged_archives(tmp_path, files):
    path = pack(tmp_path / "e.zip", files)
    data = path.read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"cut\.zip is not a ZIP file, or is cut off"):
        convert("labelme", tmp_path / "cut.zip", tmp_path / "site")
    spoilt = bytearray(data)
    spoilt[60:70] = bytes(10)
    (tmp_path / "spoilt.zip").write_bytes(spoilt)
    with pytest.raises(DataError, match=r"spoilt\.zip cannot be unpacked"):
        convert("labelme", tmp_path / "spoilt.zip", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_errors_name_the_archive(tmp_path, files):
    path = pack(tmp_path / "e.zip", {**files, "a.json": b"{"})
    with pytest.raises(DataError) as caught:
        convert("labelme", path, tmp_path / "site")
    assert caught.value.message.startswith(f"{path}/a.json, file: ")
