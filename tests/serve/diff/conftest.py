"""Models whose masks are known."""

from dataclasses import dataclass

import pytest
from served import Threshold, expected

from rcil.model.metadata import class_table
from rcil_serve.diff.transitions import Codes, common_classes
from rcil_serve.runtime.backends import Outputs


class Named(Threshold):
    """Dark, red and yellow pixels are of the classes that `paint` names, whatever their rows are."""

    def __init__(self, names, paint, name="named.onnx", step=1, sha256="0" * 64):
        super().__init__()
        self.name, self.sha256 = name, sha256
        table = class_table([list(names)])
        self.metadata = self.metadata.model_copy(update={"classes": table, "step": step, "rejected": None})
        self._rows = [list(names).index(paint[colour]) for colour in ("dark", "red", "yellow")]

    def run(self, batch):
        found = expected(batch)
        mask = found.copy()
        for value, row in enumerate(self._rows):
            mask[found == value] = row
        return Outputs(mask, None)


@pytest.fixture
def named():
    return Named


@dataclass
class Matched:
    """Two class tables and all that is made of them."""

    old: tuple
    new: tuple

    def __post_init__(self):
        self.classes = common_classes(self.old, self.new)
        self.codes = Codes(self.classes)


@pytest.fixture
def yard():
    """`drum` is lost, `ball` and `cone` stay at other rows, `road` and `sign` are new."""
    return Matched(
        class_table([["background", "ball", "drum", "cone"]]),
        class_table([["background", "cone", "road", "ball", "sign"]]),
    )
