from pathlib import Path

import pytest

from rcil.core.reading import DataError, read_bytes


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "absent"])
def test_a_file_that_cannot_be_is_named(name):
    with pytest.raises(DataError, match=r"(cannot read|invalid file name) .*\nLook\."):
        read_bytes(Path(name), "Look.")
