import pytest

from rcil.core.errors import ConfigError
from rcil.core.palette import colours_for
from rcil.data.class_names import CITYSCAPES, VOC, published_colours, read_names


def test_known_datasets():
    assert len(VOC) == 21
    assert len(CITYSCAPES) == 19
    assert read_names("voc")[15] == "person"


def test_a_file(tmp_path):
    (tmp_path / "names.txt").write_text("background\n\n traffic cone \n")
    assert read_names(str(tmp_path / "names.txt")) == ["background", "traffic cone"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_bad_files(tmp_path, content):
    (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"names\.txt"):
        read_names(str(tmp_path / "names.txt"))


def test_a_typo_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'cityscapes'"):
        read_names("cityscape")


def test_voc_keeps_its_colours_in_any_order():
    assert published_colours(["background", "person", "car"]) == ((0, 0, 0), (192, 128, 128), (128, 128, 128))
    assert published_colours(["background", "person", "crate"]) == colours_for(["background", "person", "crate"])
