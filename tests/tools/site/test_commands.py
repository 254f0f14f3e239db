"""The reference of the commands has every command and every option that the scripts have."""

import re

import pytest
from commands import SCRIPTS, all_commands

from tools.site.commands import commands_page

PAGES = {script: commands_page(script) for script in SCRIPTS}


def section(name):
    """What the page says of a command, up to the next one."""
    page = PAGES[name.split()[0]]
    (found,) = re.findall(rf"^## {re.escape(name)}$(.*?)(?=^## |\Z)", page, re.M | re.S)
    return found


def test_no_command_is_missing_or_gone():
    found = [name for page in PAGES.values() for name in re.findall(r"^## (.+)$", page, re.M)]
    assert sorted(found) == sorted(all_commands())


@pytest.mark.parametrize("name", all_commands())
def test_options_are_those_of_the_command(name):
    command = all_commands()[name]
    rows = [row.split(" | ")[0] for row in re.findall(r"^\| (`.*)", section(name), re.M)]
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    names = [
        [parameter.name.upper()]
        if parameter.param_type_name == "argument"
        else parameter.opts + parameter.secondary_opts
        for parameter in shown
    ]
    assert [re.findall(r"`([^`]+)`", row) for row in rows] == names


def test_a_section_shows_the_help_its_example_and_defaults():
    text = section("rcil add-class")
    assert "Teach a model one more class" in text
    assert "```\nrcil add-class --from step0.safetensors" in text
    assert re.search(r"^\| `--max-drop` \| number, at least 0 \| .*Default: `5`\. \|$", text, re.M)
    assert re.search(r"^\| `--from` \| path \| .*\*\*Required\.\*\* \|$", text, re.M)
    assert re.search(r"^\| `--strict` \|  \| ", text, re.M), "a flag takes no value"


def test_tables_are_not_broken_by_bars():
    for page in PAGES.values():
        for row in re.findall(r"^\|.*\|$", page, re.M):
            assert len(re.findall(r"(?<!\\)\|", row)) == 4, row
