import pytest

from rcil.core.errors import CheckpointError, ConfigError
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.triton.step_file import DType, read_step_file, signature_of


def test_a_folder_that_is_not_ours_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot read .*step.json: No such file"):
        read_step_file(tmp_path)


@pytest.mark.parametrize(("text", "why"), [("{", "Invalid JSON"), ('{"step": -1}', "step: Input should be greater")])
def test_a_damaged_file_is_named(tmp_path, text, why):
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"does not describe a step: {why}"):
        read_step_file(tmp_path)


FREE = InputShape(
    batch=Extent(low=1, usual=2, high=8),
    height=Extent(low=16, usual=64, high=512),
    width=Extent(low=16, usual=96, high=512),
)


def test_sizes_that_vary_are_free_and_others_are_numbers():
    free = signature_of(Interface(shape=FREE, outputs=("mask", "confidence", "logits")), 5)
    assert str(free) == (
        "image uint8 [?, ?, ?, 3] -> mask uint8 [?, ?, ?], confidence fp32 [?, ?, ?], logits fp32 [?, 5, ?, ?]"
    )
    mixed = InputShape(batch=FREE.batch, height=Extent.of(64), width=FREE.width)
    assert str(signature_of(Interface(shape=mixed), 5)) == "image uint8 [?, 64, ?, 3] -> mask uint8 [?, 64, ?]"


@pytest.mark.parametrize(("classes", "dtype"), [(256, DType.UINT8), (257, DType.INT32)])
def test_a_mask_of_many_classes_is_int32(classes, dtype):
    assert signature_of(Interface(shape=FREE), classes).outputs[0].dtype == dtype


@pytest.mark.parametrize(
    "interface", [Interface(shape=FREE, input="float"), Interface(shape=FREE, outputs=("logits",))]
)
def test_models_without_uint8_images_or_masks_are_refused(interface):
    with pytest.raises(ConfigError, match="take uint8 images and give masks"):
        signature_of(interface, 5)
