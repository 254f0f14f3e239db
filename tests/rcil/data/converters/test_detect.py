import json

import pytest

from rcil.core.reading import DataError
from rcil.data.converters import FORMATS, convert
from rcil.data.converters.detect import SIGNS, detect_format

COCO = {"images": [], "annotations": [], "categories": []}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"annotations.xml": "<annotations>"}, "cvat"),
        ({"SegmentationClass/a.png": "", "labelmap.txt": ""}, "cvat"),
        ({"annotations/instances_train.json": "{}"}, "coco"),
        ({"result.json": json.dumps(COCO)}, "coco"),
        ({"x.json": '[{"data": {}, "annotations": []}]', "prelabel.json": '{"shapes": 1}'}, "label-studio"),
        ({"x.json": '{"shapes": [], "imagePath": "a"}', "y.json": '{"shapes": []}'}, "labelme"),
        ({"train/x.json": '{"shapes": []}'}, "labelme"),
        ({"x.json": '{"a": {"filename": "a", "regions": [{"shape_attributes": {}}]}}'}, "via"),
        ({"p.json": '{"_via_img_metadata": {}}'}, "via"),
        ({"x.csv": "filename,region_shape_attributes"}, "via"),
        ({"train/_classes.csv": "", "train/a_mask.png": ""}, "roboflow"),
        ({"labels/train/a.txt": "", "data.yaml": ""}, "yolo"),
        ({"train/labels/a.txt": "", "data.yaml": ""}, "yolo"),
        ({"min.json": '[{"image": "a.png", "annotation_id": 1}]'}, "label-studio"),
        ({"via3.json": '{"project": {"data_format_version": "3.1.1"}}'}, "via"),
    ],
)
def test_every_format(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert detect_format(tmp_path) == expected


def test_what_is_not_recognised_lists_what_was_tried(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/readme.json").write_text("{}")
    with pytest.raises(DataError, match=r"the format of .*in is not recognised\n.*Looked for cvat: .*yolo: ") as caught:
        convert("auto", tmp_path / "in", tmp_path / "site")
    assert all(f"{name}: " in caught.value.hint for name in FORMATS)
    assert SIGNS.keys() == FORMATS.keys()


def test_two_formats_at_once(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(COCO))
    (tmp_path / "b.json").write_text('{"shapes": []}')
    with pytest.raises(DataError, match="looks like coco and labelme\nName the format"):
        detect_format(tmp_path)
