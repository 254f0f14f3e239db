"""The three scripts speak one language: help everywhere, one meaning a name, JSON and dry runs where they are due."""

import re

import pytest
from commands import COMMANDS, SCRIPTS, all_commands

FOUND = all_commands()
LONG = """
    rcil train, rcil compare, rcil classify, rcil add-class, rcil pick, rcil prelabel, rcil data convert,
    rcil data export, rcil data make-site, rcil-export export, rcil-serve video, rcil-serve diff
"""
SILENT = {"rcil-serve http"}
"""Serve until they are stopped and have no result."""
MANY_TYPES = {"--batch": {"int", "str"}}
"""A graph may also take a range of batches."""


def options_of(command):
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


def test_all_commands_are_known_here():
    assert set(FOUND) == set(COMMANDS)


@pytest.mark.parametrize("name", FOUND)
def test_help_has_an_example_and_describes_every_parameter(name):
    command = FOUND[name]
    assert re.search(rf"Examples?:.*{name.split()[0]} ", command.help, re.S), command.help
    for parameter in command.params:
        assert parameter.help, parameter.name


def test_an_option_has_one_meaning():
    kinds, flags = {}, {}
    for command in [*SCRIPTS.values(), *FOUND.values()]:
        for option in options_of(command):
            names = [word for word in option.opts if word.startswith("--")]
            assert len(names) == 1, option.opts
            kinds.setdefault(names[0], set()).add(option.bare_type())
            flags.setdefault(names[0], set()).add(tuple(word for word in option.opts if word not in names))
    assert {name: types for name, types in kinds.items() if len(types) > 1} == MANY_TYPES
    assert [name for name, short in flags.items() if len(short) > 1] == []
    short = [flag for (flag,) in (next(iter(ways)) for ways in flags.values() if () not in ways)]
    assert sorted(short) == ["-m", "-o", "-q", "-v"], "and each letter stands for one option"


def test_former_and_foreign_names_are_gone():
    names = {word for command in FOUND.values() for option in options_of(command) for word in option.opts}
    assert not names & {"--out", "--provider", "--most", "--limit"}


@pytest.mark.parametrize("name", [name for name in FOUND if name not in SILENT])
def test_results_are_json_on_request(name):
    assert "--json" in {word for option in options_of(FOUND[name]) for word in option.opts}


@pytest.mark.parametrize("name", re.split(r",\s+", LONG.strip()))
def test_long_work_can_be_tried(name):
    assert "--dry-run" in {word for option in options_of(FOUND[name]) for word in option.opts}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_the_common_options(script):
    names = {word for option in options_of(SCRIPTS[script]) for word in option.opts}
    assert {"--version", "-q", "--quiet", "-v", "--verbose", "--debug", "--show-completion"} <= names
