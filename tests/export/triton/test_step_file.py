import pytest

from rcil.core.errors import CheckpointError
from rcil_export.triton.step_file import read_step_file


def test_a_folder_that_is_not_ours_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot read .*step.json: No such file"):
        read_step_file(tmp_path)


@pytest.mark.parametrize(("text", "why"), [("{", "Invalid JSON"), ('{"step": -1}', "step: Input should be greater")])
def test_a_damaged_file_is_named(tmp_path, text, why):
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"does not describe a step: {why}"):
        read_step_file(tmp_path)
