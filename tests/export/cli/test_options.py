from typing import get_args

from rcil_export.cli import options
from rcil_export.graph import interface


def test_names_are_those_of_the_interface():
    assert interface.PRECISIONS == options.PRECISIONS
    assert interface.OUTPUTS == options.OUTPUTS
    assert interface.RUNTIMES == options.RUNTIMES
    assert get_args(interface.InputKind) == options.INPUTS
