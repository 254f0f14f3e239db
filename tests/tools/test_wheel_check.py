"""The commands with which an installed wheel is tried are ours, and a command that fails is noticed."""

import sys

from pages import parse

from tools.wheel_check import TRAINED, USE, run


def test_the_commands_parse():
    for words in [*USE.values(), *TRAINED.values()]:
        if words[1:] != ["--version"]:
            parse(words)
    assert {words[0] for words in USE.values()} == {"rcil", "rcil-export", "rcil-serve"}


def test_failures_are_noticed_and_shown(tmp_path, capfd):
    assert run([sys.executable, "-c", "pass"], tmp_path)
    assert not run([sys.executable, "-c", "import sys; sys.exit('broken')"], tmp_path)
    assert "broken" in capfd.readouterr().err
