import pytest

from rcil.checkpoint.importers import installed_weights
from rcil.core.errors import ConfigError
from rcil.model.header import read_header


def test_the_weights_are_there_while_they_are_needed():
    with installed_weights("efficientnet_lite0") as path:
        assert read_header(path).metadata.kind == "backbone"
    assert not path.exists()


def test_other_backbones_are_imported_by_hand():
    with pytest.raises(ConfigError, match="resnet50") as error, installed_weights("resnet50"):
        pass
    assert "rcil import" in error.value.hint
